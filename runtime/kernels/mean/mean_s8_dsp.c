/* SPDX-License-Identifier: BSD-3-Clause */
/* mean_s8 for the DSP extension, four channels at a time. This takes every call. */
#include "elements_dsp.h"

#if NEUTRON_DSP

void mean_s8_run(const NeutronKernelCall *call) {
    const NeutronMeanS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const int32_t zero_points = in->rows * in->cols * p->input_zero_point;
    for (int32_t n = w->batch0; n < w->batch1; n++) {
        const uint8_t *from = neutron_element_address(call->bases, in, n, 0, 0, w->channel0);
        uint8_t *to = neutron_element_address(call->bases, out, n, 0, 0, w->channel0);
        for (int32_t left = w->channel1 - w->channel0; left > 0; left -= 4) {
            int32_t sums[4];
            neutron_sum_dsp(sums, in, from, 0, in->rows, in->cols, left);
            for (int32_t i = 0; i < 4 && i < left; i++, to += out->channel_pitch) {
                const int32_t x = neutron_requantize(sums[i] - zero_points, p->output_multiplier, p->output_shift);
                *to = (uint8_t)neutron_bound(__qadd(x, p->output_zero_point), p->clamp_min, p->clamp_max);
            }
            from += 4 * (ptrdiff_t)in->channel_pitch;
        }
    }
}

#endif
