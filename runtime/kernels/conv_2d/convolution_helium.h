/* SPDX-License-Identifier: BSD-3-Clause */
/* Convolutions with Helium. The inputs of threes of outputs are laid side by side in pieces of 16, wherever they lie and whatever of them is
 * padding; all output channels are then sums of products of 16 numbers. This takes every call.
 *
 * Weights are packed in blocks [8 outputs][8 inputs]. One instruction loads the 8 inputs of an output of two blocks. */
#ifndef NEUTRON_CONVOLUTION_HELIUM_H
#define NEUTRON_CONVOLUTION_HELIUM_H

#include "convolution.h"

#if NEUTRON_HELIUM

enum {
    NEUTRON_PIXELS_HELIUM = 24, /* outputs at a time, a multiple of 3 */
    NEUTRON_THREE = 3,          /* outputs in registers */
    NEUTRON_PIECE = 16,         /* inputs of two blocks */
    NEUTRON_PIECES_HELIUM = 108 /* all outputs together: 576 inputs of each of 3 */
};

/* An output, and the input position of its tap (0, 0). */
typedef struct {
    int32_t n, row, col;
    uint8_t *out; /* channel 0's */
} NeutronPixelHelium;

/* A part of the inputs of one group's outputs: blocks [first, first + count), the blocks of all taps counted through. `first` is even. */
typedef struct {
    int32_t channel0; /* the group's first input channel */
    int32_t first, count;
} NeutronPartHelium;

/* The inputs of one output in a tile. Block b lies in piece b / 2, and the pieces are `pitch` bytes apart. */
typedef struct {
    uint8_t *to;
    int32_t pitch;
    int32_t index, together; /* among the outputs that lie side by side */
    ptrdiff_t next;          /* from the last of these to the next ones */
} NeutronPiecesHelium;

/* Moves on to the next output. */
static NEUTRON_INLINE void neutron_next_pieces_helium(NeutronPiecesHelium *pieces) {
    pieces->to += NEUTRON_PIECE;
    if (++pieces->index < pieces->together) return;
    pieces->index = 0;
    pieces->to += pieces->next;
}

typedef struct NeutronLayerHelium NeutronLayerHelium;

/* Writes the part of the inputs of `count` pixels. What a block has past the last channel is 0, and the second half of the last piece where
 * the number of blocks is odd. */
typedef void (*NeutronFillHelium)(const NeutronLayerHelium *layer, const NeutronPixelHelium *pixels, int32_t count,
                                  const NeutronPartHelium *part, NeutronPiecesHelium pieces);

/* Writes the weights of 8 output channels as blocks of the layer's order of inputs. `from`: as they are packed. */
typedef void (*NeutronPackHelium)(const NeutronLayerHelium *layer, const int8_t *from, int8_t *to);

struct NeutronLayerHelium {
    const NeutronKernelCall *call;
    NeutronFillHelium fill;
    NeutronPackHelium pack; /* NULL: the blocks of inputs are those of the packed weights */
    int32_t blocks;         /* of 8 inputs, of all taps of an output */
    const uint8_t *input;   /* element (0, 0, 0, 0) */
};

/* All of the call. The layer's `input` is filled in. With `pack`, all outputs are of one group, and their inputs fit as a whole. */
void neutron_convolution_helium(NeutronLayerHelium *layer);

/* Writes `channels` channels of an input element as blocks from `block` on; pitch 0 repeats the first one. */
void neutron_fill_blocks_helium(NeutronPiecesHelium pieces, int32_t block, const uint8_t *from, int32_t channel_pitch, int32_t channels);

/* Writes `count` inputs that follow each other, from the first piece on. */
static NEUTRON_INLINE void neutron_fill_pieces_helium(const NeutronPiecesHelium *pieces, const uint8_t *from, int32_t count) {
    int8_t *to = (int8_t *)pieces->to;
    for (; count >= NEUTRON_PIECE; count -= NEUTRON_PIECE, from += NEUTRON_PIECE, to += pieces->pitch) {
        vstrbq_s8(to, vldrbq_s8((const int8_t *)from));
    }
    if (count > 0) vstrbq_s8(to, vldrbq_z_s8((const int8_t *)from, vctp8q((uint32_t)count)));
}

/* Element (n, r, c, 0) of a buffer whose element (0, 0, 0, 0) is at `first`. */
static inline ptrdiff_t neutron_offset_helium(const NeutronBuffer *buffer, int32_t n, int32_t r, int32_t c) {
    return (ptrdiff_t)n * buffer->batch_pitch + (ptrdiff_t)(r % buffer->ring) * buffer->row_pitch + (ptrdiff_t)c * buffer->col_pitch;
}

#endif
#endif
