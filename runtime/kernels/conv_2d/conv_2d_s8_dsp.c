/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_s8 for the DSP extension: the inputs of all taps side by side. */
#include "convolution_dsp.h"

#if NEUTRON_DSP

static void fill(const NeutronLayerDsp *layer, const NeutronPixelDsp *pixel, const NeutronPartDsp *part, uint32_t *to,
                 size_t pitch) {
    const NeutronConv2dS8 *p = layer->call->params;
    const NeutronBuffer *input = &layer->call->buffers[p->input];
    const uint32_t tap_blocks = (uint32_t)neutron_blocks_of(p->group_inputs), tap = part->first / tap_blocks;
    const uint8_t padding = (uint8_t)p->input_zero_point;
    uint32_t block = part->first % tap_blocks, left = part->count;
    int32_t i = (int32_t)(tap / (uint32_t)p->kernel_w), j = (int32_t)(tap % (uint32_t)p->kernel_w);
    for (; left > 0; i++, j = 0) {
        const int32_t row = pixel->row + i * p->dilation_h;
        const bool row_is_inside = row >= 0 && row < input->rows;
        const uint8_t *line = row_is_inside ? neutron_element_address(layer->call->bases, input, pixel->n, row, 0,
                                                                      part->channel0)
                                            : NULL;
        for (; j < p->kernel_w && left > 0; j++, block = 0) {
            const uint32_t count = tap_blocks - block < left ? tap_blocks - block : left;
            const uint32_t words = count * layer->words;
            const int32_t col = pixel->col + j * p->dilation_w;
            const int32_t channel = (int32_t)block * NEUTRON_LANES, channels = p->group_inputs - channel;
            if (row_is_inside && col >= 0 && col < input->cols) {
                neutron_widen_dsp(to, pitch, line + col * input->col_pitch + channel * input->channel_pitch,
                                  input->channel_pitch, channels, words);
            } else {
                neutron_widen_dsp(to, pitch, &padding, 0, channels, words);
            }
            to += words * pitch;
            left -= count;
        }
    }
}

void conv_2d_s8_run(const NeutronKernelCall *call) {
    const NeutronConv2dS8 *p = call->params;
    const bool thin = p->group_inputs <= 4;
    const NeutronLayerDsp layer = {
        .call = call,
        .fill = fill,
        .multiply = thin ? neutron_multiply_thin_dsp : neutron_multiply_dsp,
        .blocks = (uint32_t)p->kernel_h * (uint32_t)p->kernel_w * (uint32_t)neutron_blocks_of(p->group_inputs),
        .words = thin ? 1 : 2,
    };
    neutron_convolution_dsp(&layer);
}

#endif
