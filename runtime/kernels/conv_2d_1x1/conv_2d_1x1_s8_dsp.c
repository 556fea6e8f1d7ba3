/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_1x1_s8 for the DSP extension: one tap, and no padding. */
#include "conv_2d/convolution_dsp.h"

#if NEUTRON_DSP

static void fill(const NeutronLayerDsp *layer, const NeutronPixelDsp *pixel, const NeutronPartDsp *part, uint32_t *to,
                 size_t pitch) {
    const NeutronConv2d1x1S8 *p = layer->call->params;
    const NeutronBuffer *input = &layer->call->buffers[p->input];
    const int32_t channel = (int32_t)part->first * NEUTRON_LANES;
    const uint8_t *const from = neutron_place_dsp(layer->input, input, pixel->n, pixel->row, pixel->col);
    neutron_widen_dsp(to, pitch, from + channel * input->channel_pitch, input->channel_pitch, p->group_inputs - channel,
                      2 * part->count);
}

void conv_2d_1x1_s8_run(const NeutronKernelCall *call) {
    const NeutronConv2d1x1S8 *p = call->params;
    NeutronLayerDsp layer = {
        .call = call,
        .fill = fill,
        .multiply = neutron_multiply_dsp,
        .blocks = (uint32_t)neutron_blocks_of(p->group_inputs),
        .words = 2,
    };
    neutron_convolution_dsp(&layer);
}

#endif
