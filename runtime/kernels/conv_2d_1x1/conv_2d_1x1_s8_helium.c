/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_1x1_s8 for Helium: one tap, and no padding. */
#include "conv_2d/convolution_helium.h"

#if NEUTRON_HELIUM

static void fill(const NeutronLayerHelium *layer, const NeutronPixelHelium *pixels, int32_t count, const NeutronPartHelium *part,
                 NeutronPiecesHelium pieces) {
    const NeutronConv2d1x1S8 *p = layer->call->params;
    const NeutronBuffer *input = &layer->call->buffers[p->input];
    const int32_t channel = part->first * NEUTRON_LANES, rest = p->group_inputs - channel, most = part->count * NEUTRON_LANES;
    const int32_t channels = rest < most ? rest : most, col_pitch = input->col_pitch, pitch = input->channel_pitch;
    const uint8_t *line = NULL;
    for (int32_t i = 0; i < count; i++, neutron_next_pieces_helium(&pieces)) {
        const NeutronPixelHelium *const pixel = &pixels[i];
        if (i == 0 || pixel->row != pixel[-1].row || pixel->n != pixel[-1].n) {
            line = layer->input + neutron_offset_helium(input, pixel->n, pixel->row, 0) + (ptrdiff_t)channel * pitch;
        }
        const uint8_t *const from = line + (ptrdiff_t)pixel->col * col_pitch;
        if (pitch == 1) {
            neutron_fill_pieces_helium(&pieces, from, channels);
        } else {
            neutron_fill_blocks_helium(pieces, 0, from, pitch, channels);
        }
    }
}

void conv_2d_1x1_s8_run(const NeutronKernelCall *call) {
    const NeutronConv2d1x1S8 *p = call->params;
    NeutronLayerHelium layer = {.call = call, .fill = fill, .blocks = (int32_t)neutron_blocks_of(p->group_inputs)};
    neutron_convolution_helium(&layer);
}

/* A vector is one pixel. */
void conv_2d_1x1_s8_run_vector(const NeutronKernelCall *call) { conv_2d_1x1_s8_run(call); }

#endif
