/* SPDX-License-Identifier: BSD-3-Clause */
/* For each batch conv_2d_1x1_parts_s8, then attention_s8 of its result, which is in scratch. */
#include "kernel.h"

/* The first words are those of attention_s8; then come those of conv_2d_1x1_parts_s8. */
NEUTRON_STATIC_ASSERT(sizeof(NeutronConv2d1x1PartsAttentionS8) == sizeof(NeutronAttentionS8) + sizeof(NeutronConv2d1x1PartsS8) &&
                   offsetof(NeutronConv2d1x1PartsAttentionS8, input) == sizeof(NeutronAttentionS8),
               "the same words");

static int64_t at_most(int64_t value) { return value < INT32_MAX ? value : INT32_MAX; }

static NeutronWindowExtents layers_window(const NeutronBuffer *projected, int32_t batch0, int32_t batch1) {
    return (NeutronWindowExtents){batch0, batch1, 0, projected->rows, 0, projected->cols, 0, projected->channels};
}

/* The word `work` bounds attention, and what it leaves in each row of a head bounds the layers. The checks of the parts bound the
 * products of two extents. */
static bool work_is_sound(const NeutronProgramView *program, const NeutronConv2d1x1PartsAttentionS8 *p,
                          const NeutronWindowExtents *window) {
    const NeutronBuffer *projected = &program->buffers[p->projected];
    const int64_t keys = program->buffers[p->key].rows, channels = (int64_t)window->channel1 - window->channel0;
    const int64_t heads = (int64_t)window->col1 - window->col0, rows = (int64_t)window->row1 - window->row0;
    const int64_t lines = (int64_t)projected->rows * projected->cols;
    if (lines > INT32_MAX || lines * projected->channels > INT32_MAX) return false;
    const int64_t left = at_most((int64_t)p->work * channels - keys * (p->depth + channels));
    return left >= 0 && left * at_most(rows * heads) >= lines * projected->channels * p->layers_group_inputs;
}

bool conv_2d_1x1_parts_attention_s8_check(const NeutronProgramView *program, const void *params,
                                          const NeutronWindowExtents *window) {
    const NeutronConv2d1x1PartsAttentionS8 *p = params;
    const NeutronBuffer *projected = neutron_checked_buffer(program, p->projected, true);
    if (projected == NULL) return false;
    const NeutronWindowExtents layers = layers_window(projected, window->batch0, window->batch1);
    return conv_2d_1x1_parts_s8_check(program, &p->input, &layers) && attention_s8_check(program, params, window) &&
           work_is_sound(program, p, window);
}

void conv_2d_1x1_parts_attention_s8_run(const NeutronKernelCall *call) {
    const NeutronConv2d1x1PartsAttentionS8 *p = call->params;
    NeutronKernelCall part = *call;
    for (int32_t n = call->window.batch0; n < call->window.batch1; n++) {
        part.params = &p->input;
        part.window = layers_window(&call->buffers[p->projected], n, n + 1);
        conv_2d_1x1_parts_s8_run(&part);
        part.params = p;
        part.window = call->window;
        part.window.batch0 = n;
        part.window.batch1 = n + 1;
        attention_s8_run(&part);
    }
}
