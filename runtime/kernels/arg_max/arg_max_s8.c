/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's ARG_MAX and ARG_MIN (reference/arg_min_max.h), on stored values: of several equal ones the first. */
#include "elements.h"

bool arg_max_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronArgMaxS8 *p = params_block;
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    const NeutronBuffer *out = neutron_window_buffer(program, p->output, true, window);
    if (in == NULL || out == NULL || window->batch1 > in->batches || window->row1 > in->rows) return false;
    return (p->smaller == 0 || p->smaller == 1) && p->depth >= 1 &&
           neutron_buffer_holds(in, window->col0, window->col1, 0, p->depth);
}

/* Values at the front that no value behind them beats. The smallest is the largest of those whose bits are all turned. */
static int32_t first_largest(const uint8_t *line, int32_t pitch, int32_t count, int8_t turned) {
    int32_t place = 0;
    int8_t largest = (int8_t)((int8_t)line[0] ^ turned);
    for (int32_t i = 1; i < count; i++) {
        const int8_t value = (int8_t)((int8_t)line[(ptrdiff_t)i * pitch] ^ turned);
        if (value > largest) {
            largest = value;
            place = i;
        }
    }
    return place;
}

void arg_max_s8_run(const NeutronKernelCall *call) {
    const NeutronArgMaxS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const int8_t turned = p->smaller ? -1 : 0;
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        for (int32_t c = w->col0; c < w->col1; c++) {
            const uint8_t *line = neutron_element_address(call->bases, in, n, r, c, 0);
            uint8_t *to = neutron_element_address(call->bases, out, n, r, c, 0);
            const int32_t place = first_largest(line, in->channel_pitch, p->depth, turned);
            for (int32_t k = w->channel0; k < w->channel1; k++) {
                to[(ptrdiff_t)k * out->channel_pitch] = (uint8_t)(k < 4 ? (uint32_t)place >> 8 * k : 0);
            }
        }
    }
}
