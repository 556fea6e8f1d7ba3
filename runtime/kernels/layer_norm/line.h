/* SPDX-License-Identifier: BSD-3-Clause */
/* Layer norm and RMS norm of lines of channels, for both types of activations. */
#ifndef NEUTRON_LAYER_NORM_LINE_H
#define NEUTRON_LAYER_NORM_LINE_H

#include "normalization.h"

static NEUTRON_INLINE bool layer_norm_check(const NeutronProgramView *program, const NeutronLayerNormS8 *p,
                                            const NeutronWindowExtents *window, const int32_t element_bytes) {
    return p->channels <= MOST_NORMALIZED &&
           neutron_lines_are_sound(program, p->input, p->output, p->channels, window, (uint32_t)element_bytes) &&
           NEUTRON_NORMALIZATION_IS_SOUND(program, p, p->channels);
}

static NEUTRON_INLINE void layer_norm_run(const NeutronKernelCall *call, const NeutronLayerNormS8 *p,
                                          const int32_t element_bytes) {
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const NeutronNormalization by = NEUTRON_NORMALIZATION(call, p, element_bytes);
    const ptrdiff_t pitch = in->channel_pitch;
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        NEUTRON_FOR_EACH_COLUMN(call, in, out, n, r, at) {
            NeutronNormSums sums = {0, 0};
            neutron_norm_add(&sums, at.from, pitch, p->channels, by.zero_point, element_bytes);
            const NeutronNormScale scale = neutron_norm_scale(sums, p->channels, p->centred != 0, by.epsilon, element_bytes);
            neutron_norm_line(at.to, out->channel_pitch, at.from + w->channel0 * pitch, pitch, w->channel0,
                              w->channel1 - w->channel0, &by, &scale, element_bytes);
        }
    }
}

#endif
