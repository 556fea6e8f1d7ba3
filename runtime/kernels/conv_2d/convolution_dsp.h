/* SPDX-License-Identifier: BSD-3-Clause */
/* Convolutions with the DSP extension. The inputs of up to 6 outputs are laid side by side as 16-bit numbers, wherever they
 * lie and whatever of them is padding; all output channels are then sums of products of pairs. This takes every call. */
#ifndef NEUTRON_CONVOLUTION_DSP_H
#define NEUTRON_CONVOLUTION_DSP_H

#include "convolution.h"

#if NEUTRON_DSP

enum {
    NEUTRON_PIXELS_DSP = 6,    /* outputs at a time */
    NEUTRON_CHANNELS_DSP = 32, /* output channels at a time, a multiple of 8 */
    NEUTRON_WORDS_DSP = 240    /* of 4 inputs, 8 bytes each, all outputs together: 160 inputs of each of 6 */
};

/* An output, and the input position of its tap (0, 0). */
typedef struct {
    int32_t n, row, col;
    uint8_t *out; /* channel 0's */
} NeutronPixelDsp;

/* Element (n, r, c, 0) of a buffer whose element (0, 0, 0, 0) is at `first`. */
static inline uint8_t *neutron_place_dsp(uint8_t *first, const NeutronBuffer *buffer, int32_t n, int32_t r, int32_t c) {
    return first + n * buffer->batch_pitch + r % buffer->ring * buffer->row_pitch + c * buffer->col_pitch;
}

/* Up to 6 pixels, or one pixel. layer: the layer of the kernel. */
typedef struct {
    const void *layer;
    const NeutronPixelDsp *pixels;
    int32_t count, size; /* pixels to store, and pixels in the sums */
} NeutronTileDsp;

typedef void (*NeutronComputeTileDsp)(const NeutronTileDsp *tile);

/* compute() for all pixels of the window, 6 at a time; a few left over one by one, unless `always_six`. p: of the words, those that
 * the convolutions of all types share. */
static NEUTRON_INLINE void neutron_compute_tiles_dsp(const NeutronKernelCall *call, const void *layer, bool always_six,
                                                     NeutronComputeTileDsp compute) {
    const NeutronConv2dS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *output = &call->buffers[p->output];
    uint8_t *const first = neutron_element_address(call->bases, output, 0, 0, 0, 0);
    int32_t n = w->batch0, r = w->row0, c = w->col0;
    do {
        NeutronPixelDsp pixels[NEUTRON_PIXELS_DSP];
        NeutronTileDsp tile = {.layer = layer, .pixels = pixels};
        for (; tile.count < NEUTRON_PIXELS_DSP && n < w->batch1; tile.count++) {
            NeutronPixelDsp *pixel = &pixels[tile.count];
            pixel->n = n;
            pixel->row = r * p->stride_h - p->pad_top;
            pixel->col = c * p->stride_w - p->pad_left;
            pixel->out = neutron_place_dsp(first, output, n, r, c);
            if (++c < w->col1) continue;
            c = w->col0;
            if (++r < w->row1) continue;
            r = w->row0;
            n++;
        }
        /* 6 pixels together take as long as 4 by themselves. */
        const bool together = tile.count > 4 || always_six;
        tile.size = together ? NEUTRON_PIXELS_DSP : 1;
        int32_t left = tile.count;
        if (!together) tile.count = 1;
        for (; left > 0; left -= tile.count, tile.pixels += tile.count) compute(&tile);
    } while (n < w->batch1);
}

/* A part of the inputs of one group's outputs: blocks [first, first + count), the blocks of all taps counted through. */
typedef struct {
    int32_t channel0; /* the group's first input channel */
    uint32_t first, count;
} NeutronPartDsp;

typedef struct NeutronLayerDsp NeutronLayerDsp;

/* Widens a pixel's part of the inputs. `pitch`: from the pairs of 4 inputs to the next ones, in 32-bit words. */
typedef void (*NeutronFillDsp)(const NeutronLayerDsp *layer, const NeutronPixelDsp *pixel, const NeutronPartDsp *part,
                               uint32_t *to, size_t pitch);

/* Adds the products of a lane's weights (of four lanes' where there is one pixel) with the inputs, [block][word][pixel][2],
 * to the sums, [lane][pixel]; where `start` is not NULL, to the biases there. */
typedef void (*NeutronMultiplyDsp)(uint32_t *sums, const uint32_t *inputs, const uint32_t *end, const int8_t *weights,
                                   const int32_t *start);

struct NeutronLayerDsp {
    const NeutronKernelCall *call;
    NeutronFillDsp fill;
    NeutronMultiplyDsp multiply; /* 6 pixels */
    uint32_t blocks;             /* of 8 inputs, of all taps of an output */
    uint32_t words;              /* of 4 inputs in a block that hold any: 2, or 1 where there are at most 4 */
    uint8_t *input;              /* element (0, 0, 0, 0) */
};

/* All of the call. The layer's `input` is filled in. */
void neutron_convolution_dsp(NeutronLayerDsp *layer);

void neutron_multiply_dsp(uint32_t *sums, const uint32_t *inputs, const uint32_t *end, const int8_t *weights,
                          const int32_t *start);

/* Adds the products of one pixel: four lanes share the inputs. */
void neutron_multiply_one_dsp(uint32_t *sums, const uint32_t *inputs, const uint32_t *end, const int8_t *weights,
                              const int32_t *start);

/* For blocks of one word. */
void neutron_multiply_thin_dsp(uint32_t *sums, const uint32_t *inputs, const uint32_t *end, const int8_t *weights,
                               const int32_t *start);

/* Widens `words` words of 4 inputs, of which the first `channels` are there and the others are 0. */
void neutron_widen_dsp(uint32_t *to, size_t pitch, const uint8_t *from, int32_t channel_pitch, int32_t channels,
                       uint32_t words);

static inline void neutron_widen_word_dsp(uint32_t *to, uint32_t word) {
    to[0] = neutron_even_bytes(word);
    to[1] = neutron_odd_bytes(word);
}

/* Up to 4 inputs as a word; the rest of it is 0. */
static inline uint32_t neutron_gathered_word_dsp(const uint8_t *from, int32_t channel_pitch, int32_t channels) {
    uint32_t word = 0;
    if (channels > 0) word = *from;
    if (channels > 1) word |= (uint32_t)*(from += channel_pitch) << 8;
    if (channels > 2) word |= (uint32_t)*(from += channel_pitch) << 16;
    if (channels > 3) word |= (uint32_t)from[channel_pitch] << 24;
    return word;
}

/* An accumulator and a channel's two words of the requantization table: scales that the short forms do not take. */
int32_t neutron_rescaled_dsp(const NeutronConv2dS8 *p, int32_t x, int32_t multiplier, int32_t shift);

#endif
#endif
