/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_s8 for the DSP extension: the inputs of all taps side by side. */
#include "convolution_dsp.h"

#if NEUTRON_DSP && !NEUTRON_HELIUM

/* Taps of up to 4 input channels, one word each. tap_pitch: bytes from one to the next. */
static __attribute__((noinline)) void widen_thin_taps(uint32_t *to, size_t pitch, const uint8_t *from, int32_t tap_pitch,
                                                      int32_t channel_pitch, int32_t channels, uint32_t count) {
    for (; count > 0; count--, from += tap_pitch, to += pitch) {
        neutron_widen_word_dsp(to, neutron_gathered_word_dsp(from, channel_pitch, channels));
    }
}

static bool is_inside(int32_t at, int32_t extent) { return (uint32_t)at < (uint32_t)extent; }

static void fill(const NeutronLayerDsp *layer, const NeutronPixelDsp *pixel, const NeutronPartDsp *part, uint32_t *to,
                 size_t pitch) {
    const NeutronConv2dS8 *p = layer->call->params;
    const NeutronBuffer *input = &layer->call->buffers[p->input];
    const uint8_t padding = (uint8_t)p->input_zero_point;
    const uint32_t tap_blocks = layer->blocks / (uint32_t)(p->kernel_h * p->kernel_w), tap = part->first / tap_blocks;
    const bool thin = layer->words == 1;
    /* Taps of a row that follow each other without a gap, here and there, are as one. */
    const bool joined = thin || (p->dilation_w == 1 && p->group_inputs % NEUTRON_LANES == 0 &&
                                 neutron_columns_join(input, p->group_inputs));
    uint32_t block = part->first % tap_blocks, left = part->count;
    int32_t i = (int32_t)(tap / (uint32_t)p->kernel_w), j = (int32_t)(tap % (uint32_t)p->kernel_w);
    for (; left > 0; i++, j = 0) {
        const int32_t row = pixel->row + i * p->dilation_h;
        const bool row_is_inside = is_inside(row, input->rows);
        const uint8_t *const line = neutron_place_dsp(layer->input, input, pixel->n, row_is_inside ? row : 0, 0) +
                                    part->channel0 * input->channel_pitch;
        for (int32_t taps; j < p->kernel_w && left > 0; j += taps) {
            const int32_t col = pixel->col + j * p->dilation_w;
            const bool inside = row_is_inside && is_inside(col, input->cols);
            const int32_t channel = (int32_t)block * NEUTRON_LANES, channel_pitch = inside ? input->channel_pitch : 0;
            const uint8_t *const from = inside ? line + col * input->col_pitch + channel * channel_pitch : &padding;
            taps = 1;
            if (joined && inside) {
                taps = p->kernel_w - j;
                if (input->cols - col <= (taps - 1) * p->dilation_w) taps = (input->cols - 1 - col) / p->dilation_w + 1;
            }
            uint32_t count = (uint32_t)taps * tap_blocks - block;
            if (count > left) count = left;
            left -= count;
            if (thin) {
                widen_thin_taps(to, pitch, from, p->dilation_w * input->col_pitch, channel_pitch, p->group_inputs, count);
            } else {
                neutron_widen_dsp(to, pitch, from, channel_pitch, taps * p->group_inputs - channel, 2 * count);
            }
            to += layer->words * count * pitch;
            block = 0;
        }
    }
}

void conv_2d_s8_run(const NeutronKernelCall *call) {
    const NeutronConv2dS8 *p = call->params;
    const bool thin = p->group_inputs <= 4;
    NeutronLayerDsp layer = {
        .call = call,
        .fill = fill,
        .multiply = thin ? neutron_multiply_thin_dsp : neutron_multiply_dsp,
        .blocks = (uint32_t)(p->kernel_h * p->kernel_w) * (uint32_t)neutron_blocks_of(p->group_inputs),
        .words = thin ? 1 : 2,
    };
    neutron_convolution_dsp(&layer);
}

#endif
