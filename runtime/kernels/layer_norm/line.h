/* SPDX-License-Identifier: BSD-3-Clause */
/* Layer norm and RMS norm of lines of channels, for both types of activations. */
#ifndef NEUTRON_LAYER_NORM_LINE_H
#define NEUTRON_LAYER_NORM_LINE_H

#include "normalization.h"

static NEUTRON_INLINE bool layer_norm_check(const NeutronProgramView *program, const NeutronLayerNormS8 *p,
                                            const NeutronWindowExtents *window, const int32_t element_bytes) {
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    const NeutronBuffer *out = neutron_window_elements(program, p->output, true, window, (uint32_t)element_bytes);
    if (in == NULL || out == NULL || p->channels != in->channels || p->channels != out->channels) return false;
    const NeutronWindowExtents read = {window->batch0, window->batch1, window->row0, window->row1,
                                       window->col0,   window->col1,   0,            p->channels};
    return p->channels <= MOST_NORMALIZED &&
           NEUTRON_NORMALIZATION_IS_SOUND(program, p, &read, p->channels, element_bytes);
}

static NEUTRON_INLINE void layer_norm_run(const NeutronKernelCall *call, const NeutronLayerNormS8 *p,
                                          const int32_t element_bytes) {
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const NeutronNormalization by = NEUTRON_NORMALIZATION(call, p, element_bytes);
    const ptrdiff_t pitch = in->channel_pitch;
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        const uint8_t *from = neutron_element_address(call->bases, in, n, r, w->col0, 0);
        uint8_t *to = neutron_element_address(call->bases, out, n, r, w->col0, w->channel0);
        for (int32_t c = w->col0; c < w->col1; c++, from += in->col_pitch, to += out->col_pitch) {
            NeutronNormSums sums = {0, 0};
            neutron_norm_add(&sums, from, pitch, p->channels, by.zero_point, element_bytes);
            const NeutronNormScale scale = neutron_norm_scale(sums, p->channels, p->centred != 0, by.epsilon, element_bytes);
            neutron_norm_line(to, out->channel_pitch, from + w->channel0 * pitch, pitch, w->channel0,
                              w->channel1 - w->channel0, &by, &scale, element_bytes);
        }
    }
}

#endif
