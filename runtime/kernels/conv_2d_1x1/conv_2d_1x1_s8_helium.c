/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_1x1_s8 for Helium: one tap, and no padding. */
#include "conv_2d/convolution_helium.h"

#if NEUTRON_HELIUM

static void fill(const NeutronLayerHelium *layer, const NeutronPixelHelium *pixel, const NeutronPartHelium *part,
                 NeutronPiecesHelium pieces) {
    const NeutronConv2d1x1S8 *p = layer->call->params;
    const NeutronBuffer *input = &layer->call->buffers[p->input];
    const int32_t channel = part->first * NEUTRON_LANES, rest = p->group_inputs - channel, most = part->count * NEUTRON_LANES;
    const uint8_t *const from = layer->input + neutron_offset_helium(input, pixel->n, pixel->row, pixel->col);
    neutron_fill_blocks_helium(pieces, 0, from + (ptrdiff_t)channel * input->channel_pitch, input->channel_pitch,
                               rest < most ? rest : most);
}

void conv_2d_1x1_s8_run(const NeutronKernelCall *call) {
    const NeutronConv2d1x1S8 *p = call->params;
    NeutronLayerHelium layer = {.call = call, .fill = fill, .blocks = (int32_t)neutron_blocks_of(p->group_inputs)};
    neutron_convolution_helium(&layer);
}

/* A vector is one pixel. */
void conv_2d_1x1_s8_run_vector(const NeutronKernelCall *call) { conv_2d_1x1_s8_run(call); }

#endif
