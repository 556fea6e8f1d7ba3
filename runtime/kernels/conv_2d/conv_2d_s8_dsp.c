/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_s8 for the DSP extension: the inputs of all taps side by side. */
#include "convolution_dsp.h"

#if NEUTRON_DSP && !NEUTRON_HELIUM

enum { MOST_SINGLE_TAPS = NEUTRON_WORDS_DSP / NEUTRON_PIXELS_DSP };

/* Taps of up to 4 input channels, one word each. tap_pitch: bytes from one to the next. */
static __attribute__((noinline)) void widen_thin_taps(uint32_t *to, size_t pitch, const uint8_t *from, int32_t tap_pitch,
                                                      int32_t channel_pitch, int32_t channels, uint32_t count) {
    for (; count > 0; count--, from += tap_pitch, to += pitch) {
        neutron_widen_word_dsp(to, neutron_gathered_word_dsp(from, channel_pitch, channels));
    }
}

static bool is_inside(int32_t at, int32_t extent) { return (uint32_t)at < (uint32_t)extent; }

#if NEUTRON_FAST_DSP

/* fill_any() of taps that are all inside the input and joined in each row. */
static void fill_inside(const NeutronLayerDsp *layer, const NeutronPixelDsp *pixel, const NeutronPartDsp *part, uint32_t *to,
                        size_t pitch) {
    const NeutronConv2dS8 *p = layer->call->params;
    const NeutronBuffer *input = &layer->call->buffers[p->input];
    const uint32_t blocks = layer->blocks / (uint32_t)p->kernel_h; /* of a row */
    uint32_t first = part->first % blocks, left = part->count;
    int32_t row = pixel->row + (int32_t)(part->first / blocks) * p->dilation_h;
    for (; left > 0; row += p->dilation_h, first = 0) {
        const uint8_t *const from = neutron_place_dsp(layer->input, input, pixel->n, row, pixel->col) + part->channel0;
        const uint32_t count = left < blocks - first ? left : blocks - first;
        neutron_widen_dsp(to, pitch, from + first * NEUTRON_LANES, 1, (int32_t)(NEUTRON_LANES * count), 2 * count);
        to += 2 * count * pitch;
        left -= count;
    }
}

/* The same of 2 to 4 channels side by side. A word that begins with a tap, or ends with it, is of taps of the row alone. */
static void fill_thin_inside(const NeutronLayerDsp *layer, const NeutronPixelDsp *pixel, const NeutronPartDsp *part,
                             uint32_t *to, size_t pitch) {
    const NeutronConv2dS8 *p = layer->call->params;
    const NeutronBuffer *input = &layer->call->buffers[p->input];
    const int32_t others = 4 - p->group_inputs, tap_pitch = p->dilation_w * input->col_pitch;
    for (int32_t i = 0, row = pixel->row; i < p->kernel_h; i++, row += p->dilation_h) {
        const uint8_t *from = neutron_place_dsp(layer->input, input, pixel->n, row, pixel->col) + part->channel0;
        neutron_widen_word_dsp(to, neutron_load_word(from) << 8 * others >> 8 * others);
        from -= others;
        to += pitch;
        for (int32_t j = 1; j < p->kernel_w; j++, to += pitch) {
            from = neutron_kept_pointer(from + tap_pitch);
            neutron_widen_word_dsp(to, neutron_load_word(from) >> 8 * others);
        }
    }
}

/* All taps of one input channel: words of four taps, then of one each. */
NEUTRON_SMALL_RUN static void fill_single(const NeutronLayerDsp *layer, const NeutronPixelDsp *pixel, const NeutronPartDsp *part, uint32_t *to,
                        size_t pitch) {
    const NeutronConv2dS8 *p = layer->call->params;
    const NeutronBuffer *input = &layer->call->buffers[p->input];
    uint8_t taps[MOST_SINGLE_TAPS], *tap = taps;
    for (int32_t i = 0, row = pixel->row; i < p->kernel_h; i++, row += p->dilation_h) {
        const bool row_is_inside = is_inside(row, input->rows);
        const uint8_t *const line = neutron_place_dsp(layer->input, input, pixel->n, row_is_inside ? row : 0, 0) +
                                    part->channel0 * input->channel_pitch;
        for (int32_t j = 0, col = pixel->col; j < p->kernel_w; j++, col += p->dilation_w) {
            const bool inside = row_is_inside && is_inside(col, input->cols);
            *tap++ = inside ? line[col * input->col_pitch] : (uint8_t)p->input_zero_point;
        }
    }
    const uint32_t count = part->count, words = count / 4;
    neutron_widen_dsp(to, pitch, taps, 1, (int32_t)count, words);
    widen_thin_taps(to + words * pitch, pitch, taps + 4 * words, 1, 0, 1, count % 4);
}

#endif

NEUTRON_SMALL_RUN static __attribute__((noinline)) void fill_any(const NeutronLayerDsp *layer, const NeutronPixelDsp *pixel, const NeutronPartDsp *part, uint32_t *to,
                 size_t pitch) {
    const NeutronConv2dS8 *p = layer->call->params;
    const NeutronBuffer *input = &layer->call->buffers[p->input];
    const uint8_t padding = (uint8_t)p->input_zero_point;
    const uint32_t tap_blocks = layer->blocks / (uint32_t)(p->kernel_h * p->kernel_w), tap = part->first / tap_blocks;
    const bool thin = layer->words == 1;
    /* Taps of a row that follow each other without a gap, here and there, are as one. */
    const bool joined = thin || layer->joined;
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

static void fill(const NeutronLayerDsp *layer, const NeutronPixelDsp *pixel, const NeutronPartDsp *part, uint32_t *to,
                 size_t pitch) {
#if NEUTRON_FAST_DSP
    const NeutronConv2dS8 *p = layer->call->params;
    const NeutronBuffer *input = &layer->call->buffers[p->input];
    if (pixel->row >= 0 && pixel->row + (p->kernel_h - 1) * p->dilation_h < input->rows && pixel->col >= 0 &&
        pixel->col + (p->kernel_w - 1) * p->dilation_w < input->cols) {
        if (layer->joined) {
            fill_inside(layer, pixel, part, to, pitch);
            return;
        }
        if (part->count == layer->blocks && layer->beside) {
            fill_thin_inside(layer, pixel, part, to, pitch);
            return;
        }
    }
#endif
    fill_any(layer, pixel, part, to, pitch);
}

NEUTRON_SMALL_RUN void conv_2d_s8_run(const NeutronKernelCall *call) {
    const NeutronConv2dS8 *p = call->params;
    const NeutronBuffer *input = &call->buffers[p->input];
    const bool thin = p->group_inputs <= 4;
#if NEUTRON_FAST_DSP
    const bool single = p->group_inputs == 1 && p->kernel_h * p->kernel_w >= 4 && p->kernel_h * p->kernel_w <= MOST_SINGLE_TAPS;
#endif
    NeutronLayerDsp layer = {
        .call = call,
#if !NEUTRON_FAST_DSP
        .fill = fill,
#else
        .fill = single ? fill_single : fill,
#endif
        .blocks = (uint32_t)(p->kernel_h * p->kernel_w) * (uint32_t)neutron_blocks_of(p->group_inputs),
        .words = thin ? 1 : 2,
        .joined = p->dilation_w == 1 && p->group_inputs % NEUTRON_LANES == 0 && input->channel_pitch == 1 &&
                  neutron_columns_join(input, p->group_inputs),
#if NEUTRON_FAST_DSP
        .beside = thin && p->kernel_w > 1 && p->group_inputs > 1 && input->channel_pitch == 1 &&
                  input->col_pitch >= p->group_inputs,
        .single = single,
#endif
    };
    neutron_convolution_dsp(&layer);
}

#endif
