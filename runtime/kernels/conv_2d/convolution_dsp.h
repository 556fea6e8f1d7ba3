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

/* compute() for all pixels of the window, 6 at a time, but at most `alone` that are left over one by one. p: of the words, those
 * that the convolutions of all types share. */
static NEUTRON_INLINE void neutron_compute_tiles_dsp(const NeutronKernelCall *call, const void *layer, int32_t alone,
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
        const bool together = tile.count > alone;
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

struct NeutronLayerDsp {
    const NeutronKernelCall *call;
    NeutronFillDsp fill;
    uint32_t blocks;             /* of 8 inputs, of all taps of an output */
    uint32_t words;              /* of 4 inputs in a block that hold any: 2, or 1 where there are at most 4 */
    bool joined;                 /* taps of a row follow each other without a gap, here and in the input */
    bool beside;                 /* 2 to 4 input channels side by side, and other taps beside each */
    bool single;                 /* one input channel: four taps in a word, as many as there are */
    uint8_t *input;              /* element (0, 0, 0, 0) */
};

static inline bool neutron_is_single_dsp(const NeutronLayerDsp *layer) { return NEUTRON_FAST_DSP && layer->single; }

/* All of the call. The layer's `input` is filled in. */
void neutron_convolution_dsp(NeutronLayerDsp *layer);

/* Some output channels of 6 pixels, whose inputs are [block][word][pixel][2]. Pointers are those of the first channel. */
typedef struct {
    const int8_t *weights;
    const int32_t *table; /* its bias; its multiplier and its shift are 8 and 16 words behind */
    uint8_t *stored;      /* the first pixel's; the others are 8 bytes apart */
    uint32_t *sums;       /* [channel][pixel] */
    int32_t count;        /* channels, at least 1 */
    const uint32_t *inputs, *end, *single_end;
    int32_t twice_zero_point; /* and 1 */
    /* Bits: CONTINUED, the sums begin with `sums` in place of the biases; THIN, blocks have one word; PARTIAL, the sums go to
     * `sums` and are not rescaled yet; POSITIVE, the lower bound is not below the zero point;
     * SINGLE, with THIN, words of inputs up to `single_end` are of four blocks with an input each. */
    uint32_t kind;
    uint32_t unfit; /* not 0 where a scale does not fit: the sums of its channel go to `sums` */
} NeutronLanesDsp;

enum { NEUTRON_CONTINUED_DSP = 1, NEUTRON_THIN_DSP = 2, NEUTRON_PARTIAL_DSP = 4, NEUTRON_POSITIVE_DSP = 8, NEUTRON_SINGLE_DSP = 16 };

/* All channels: sums of products, then stored values before they are bounded, rounded twice. Changes the words up to `count`,
 * and `unfit`. */
void neutron_lanes_dsp(NeutronLanesDsp *lanes);

/* Adds the products of one pixel, whose inputs are [block][word][2], to the sums of four lanes. No block is left out. */
void neutron_multiply_one_dsp(uint32_t *sums, const uint32_t *inputs, const uint32_t *end, const int8_t *weights);

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
