/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's SELECT_V2 (reference/select.h), on stored values. */
#include "elements.h"

bool select_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronSelectS8 *p = params_block;
    return neutron_window_buffer(program, p->condition, false, window) != NULL &&
           neutron_two_operands_are_sound(program, p->input_a, p->input_b, p->output, window);
}

typedef struct {
    const uint8_t *condition, *a, *b;
    uint8_t *out;
    int32_t condition_pitch, a_pitch, b_pitch, out_pitch;
} Line;

static NEUTRON_INLINE int32_t select_blocks(const Line *line, int32_t done, int32_t length, const int32_t size) {
    int8_t condition[NEUTRON_BLOCK], a[NEUTRON_BLOCK], b[NEUTRON_BLOCK];
    for (; done <= length - size; done += size) {
        neutron_load_block(condition, line->condition + (ptrdiff_t)done * line->condition_pitch, line->condition_pitch,
                           size);
        neutron_load_block(a, line->a + (ptrdiff_t)done * line->a_pitch, line->a_pitch, size);
        neutron_load_block(b, line->b + (ptrdiff_t)done * line->b_pitch, line->b_pitch, size);
        for (int32_t i = 0; i < size; i++) a[i] = condition[i] != 0 ? a[i] : b[i];
        neutron_store_block(line->out + (ptrdiff_t)done * line->out_pitch, line->out_pitch, a, size);
    }
    return done;
}

void select_s8_run(const NeutronKernelCall *call) {
    const NeutronSelectS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *condition = &call->buffers[p->condition], *out = &call->buffers[p->output];
    const NeutronBuffer *a = &call->buffers[p->input_a], *b = &call->buffers[p->input_b];
    int32_t cols = w->col1 - w->col0, length = w->channel1 - w->channel0;
    neutron_join_columns((const NeutronBuffer *const[]){condition, a, b, out}, 4, &cols, &length);
    Line line = {.condition_pitch = condition->channel_pitch,
                 .a_pitch = a->channel_pitch,
                 .b_pitch = b->channel_pitch,
                 .out_pitch = out->channel_pitch};
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        for (int32_t c = w->col0; c < w->col0 + cols; c++) {
            line.condition = neutron_element_address(call->bases, condition, n, r, c, w->channel0);
            line.a = neutron_element_address(call->bases, a, n, r, c, w->channel0);
            line.b = neutron_element_address(call->bases, b, n, r, c, w->channel0);
            line.out = neutron_element_address(call->bases, out, n, r, c, w->channel0);
            const int32_t done = NEUTRON_BLOCK > 1 ? select_blocks(&line, 0, length, NEUTRON_BLOCK) : 0;
            select_blocks(&line, done, length, 1);
        }
    }
}
