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
    NEUTRON_WORDS_DSP = 192    /* of 4 inputs, 8 bytes each, all outputs together: 128 inputs of each of 6 */
};

/* An output, and the input position of its tap (0, 0). */
typedef struct {
    int32_t n, row, col;
    uint8_t *out; /* channel 0's */
} NeutronPixelDsp;

typedef struct NeutronLayerDsp NeutronLayerDsp;

/* A part of the inputs of one group's outputs: `count` blocks from block `first` on, the blocks of all taps counted through.
 */
typedef struct {
    int32_t channel0; /* the group's first input channel */
    uint32_t first, count;
} NeutronPartDsp;

/* Widens a pixel's part of the inputs. `pitch`: from the pairs of 4 inputs to the next ones, in 32-bit words. */
typedef void (*NeutronFillDsp)(const NeutronLayerDsp *layer, const NeutronPixelDsp *pixel, const NeutronPartDsp *part,
                               uint32_t *to, size_t pitch);

/* Adds up `count` blocks of inputs for lanes [lane0, lane1) of 8 output channels and all pixels of a tile. sums: [8][pixels];
 * they begin with the lanes' `start`, or where that is NULL with what they are. */
typedef void (*NeutronMultiplyDsp)(uint32_t *sums, const int32_t *start, const uint32_t *inputs, const int8_t *weights,
                                   uint32_t count, int32_t lane0, int32_t lane1);

struct NeutronLayerDsp {
    const NeutronKernelCall *call;
    NeutronFillDsp fill;
    NeutronMultiplyDsp multiply; /* 6 pixels; NULL where there is one alone */
    uint32_t blocks;             /* of 8 inputs, of all taps of an output */
    uint32_t words;              /* of 4 inputs in a block that hold any: 2, or 1 where there are at most 4 */
};

/* An accumulator and a channel's two words of the requantization table: scales that the short forms do not take. */
int32_t neutron_rescaled_dsp(const NeutronConv2dS8 *p, int32_t x, int32_t multiplier, int32_t shift);

/* All of the call. */
void neutron_convolution_dsp(const NeutronLayerDsp *layer);

void neutron_multiply_dsp(uint32_t *sums, const int32_t *start, const uint32_t *inputs, const int8_t *weights,
                          uint32_t count, int32_t lane0, int32_t lane1);

/* For blocks of one word. */
void neutron_multiply_thin_dsp(uint32_t *sums, const int32_t *start, const uint32_t *inputs, const int8_t *weights,
                               uint32_t count, int32_t lane0, int32_t lane1);

/* Widens `words` words of 4 inputs, of which the first `channels` are there and the others are 0. */
void neutron_widen_dsp(uint32_t *to, size_t pitch, const uint8_t *from, int32_t channel_pitch, int32_t channels,
                       uint32_t words);

#endif
#endif
