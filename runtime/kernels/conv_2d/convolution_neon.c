/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines of pixels of a convolution for NEON, with and without the dot product extension. */
#include "neon.h"

#if NEUTRON_NEON_VARIANTS

/* ---- sums of products ----------------------------------------------------------------------------------------------- */

/* The sums of 8 output channels: with dot products in 2 registers; of a single pixel in 4 of two channels by two partial sums; without dot
 * products in 8 of four partial sums. */
typedef struct {
    int32x4_t part[NEUTRON_LANES];
} Sums;

typedef enum { DOT, DOT_OF_ONE, PAIRS } Form;

static NEUTRON_INLINE void begin(Sums *sums, const NeutronRescaleNeon *rescale, const Form form, const int pixels) {
    NEUTRON_UNROLL
    for (int p = 0; p < pixels; p++) {
        NEUTRON_UNROLL
        for (int k = 0; k < NEUTRON_LANES; k++) sums[p].part[k] = vdupq_n_s32(0);
        if (form == DOT) {
            sums[p].part[0] = rescale->bias[0];
            sums[p].part[1] = rescale->bias[1];
        }
    }
}

/* The sums of channels 0 to 3 and 4 to 7, with their biases. */
static NEUTRON_INLINE void fold(int32x4_t *folded, const Sums *sums, const NeutronRescaleNeon *rescale, const Form form) {
    const int32x4_t *part = sums->part;
    if (form == DOT) {
        folded[0] = part[0];
        folded[1] = part[1];
    } else if (form == DOT_OF_ONE) {
        folded[0] = vaddq_s32(vpaddq_s32(part[0], part[1]), rescale->bias[0]);
        folded[1] = vaddq_s32(vpaddq_s32(part[2], part[3]), rescale->bias[1]);
    } else {
        folded[0] = vaddq_s32(vpaddq_s32(vpaddq_s32(part[0], part[1]), vpaddq_s32(part[2], part[3])), rescale->bias[0]);
        folded[1] = vaddq_s32(vpaddq_s32(vpaddq_s32(part[4], part[5]), vpaddq_s32(part[6], part[7])), rescale->bias[1]);
    }
}

/* 4 channels by inputs 0 to 3, and by 4 to 7, from the weights of the first two of them and the others. */
static NEUTRON_INLINE int8x16_t first_inputs(int8x16_t a, int8x16_t b) {
    return vreinterpretq_s8_s32(vuzp1q_s32(vreinterpretq_s32_s8(a), vreinterpretq_s32_s8(b)));
}
static NEUTRON_INLINE int8x16_t last_inputs(int8x16_t a, int8x16_t b) {
    return vreinterpretq_s8_s32(vuzp2q_s32(vreinterpretq_s32_s8(a), vreinterpretq_s32_s8(b)));
}

/* The products of one packed block with the lower or the upper 8 inputs of each pixel's 16. */
#define ADD_BLOCK(sums, weights, x, pixels, first, second)                                                          \
    do {                                                                                                            \
        const int8x16_t a = vld1q_s8(weights), b = vld1q_s8((weights) + 16);                                        \
        const int8x16_t c = vld1q_s8((weights) + 32), d = vld1q_s8((weights) + 48);                                 \
        const int8x16_t four[4] = {first_inputs(a, b), first_inputs(c, d), last_inputs(a, b), last_inputs(c, d)};   \
        NEUTRON_UNROLL                                                                                              \
        for (int p = 0; p < (pixels); p++) {                                                                        \
            NEUTRON_ADD_DOTS((sums)[p].part[0], four[0], (x)[p], first);                                            \
            NEUTRON_ADD_DOTS((sums)[p].part[1], four[1], (x)[p], first);                                            \
        }                                                                                                           \
        NEUTRON_UNROLL                                                                                              \
        for (int p = 0; p < (pixels); p++) {                                                                        \
            NEUTRON_ADD_DOTS((sums)[p].part[0], four[2], (x)[p], second);                                           \
            NEUTRON_ADD_DOTS((sums)[p].part[1], four[3], (x)[p], second);                                           \
        }                                                                                                           \
    } while (0)

/* 8 inputs, of which the first `count` are read, in both halves of a register. */
static NEUTRON_INLINE int8x16_t twice(const uint8_t *from, int32_t count) {
    int64_t word; /* the pointer is that of bytes at any address */
    if (count >= 8) {
        memcpy(&word, from, sizeof word);
        return vreinterpretq_s8_s64(vdupq_n_s64(word));
    }
    return vreinterpretq_s8_u64(vdupq_n_u64(neutron_load_few(from, count)));
}

static NEUTRON_INLINE void add_8(Sums *sums, const int8_t *weights, const uint8_t *const *from, int32_t count,
                                 const Form form, const int pixels) {
    int8x16_t x[NEUTRON_PIXELS_DOT];
    NEUTRON_UNROLL
    for (int p = 0; p < pixels; p++) x[p] = twice(from[p], count);
    if (form == DOT) {
        ADD_BLOCK(sums, weights, x, pixels, 0, 1);
        return;
    }
    NEUTRON_UNROLL
    for (int k = 0; k < NEUTRON_LANES / 2; k++) {
        const int8x16_t two = vld1q_s8(weights + 16 * k);
        NEUTRON_UNROLL
        for (int p = 0; p < pixels; p++) {
            int32x4_t *part = sums[p].part;
            if (form == DOT_OF_ONE) {
                NEUTRON_ADD_DOTS_OF_LANES(part[k], two, x[p]);
            } else {
                part[2 * k] = vpadalq_s16(part[2 * k], vmull_s8(vget_low_s8(two), vget_low_s8(x[p])));
                part[2 * k + 1] = vpadalq_s16(part[2 * k + 1], vmull_high_s8(two, x[p]));
            }
        }
    }
}

/* Adds the products of all inputs of the pixels from `first` on, `pitch` apart. */
static NEUTRON_INLINE void add_inputs(Sums *sums, const int8_t *weights, const uint8_t *first, ptrdiff_t pitch, int32_t bytes,
                                      const Form form, const int pixels) {
    enum { BLOCK = NEUTRON_LANES * NEUTRON_LANES };
    const uint8_t *from[NEUTRON_PIXELS_DOT];
    NEUTRON_UNROLL
    for (int p = 0; p < pixels; p++) from[p] = first + p * pitch;
    if (form == DOT) {
        for (; bytes >= 16; bytes -= 16, weights += 2 * BLOCK) {
            int8x16_t x[NEUTRON_PIXELS_DOT];
            NEUTRON_UNROLL
            for (int p = 0; p < pixels; p++) {
                x[p] = vreinterpretq_s8_u8(vld1q_u8(from[p]));
                from[p] += 16;
            }
            ADD_BLOCK(sums, weights, x, pixels, 0, 1);
            ADD_BLOCK(sums, weights + BLOCK, x, pixels, 2, 3);
        }
    }
    for (; bytes >= 8; bytes -= 8, weights += BLOCK) {
        add_8(sums, weights, from, 8, form, pixels);
        NEUTRON_UNROLL
        for (int p = 0; p < pixels; p++) from[p] += 8;
    }
    if (bytes > 0) add_8(sums, weights, from, bytes, form, pixels);
}

/* ---- tiles ---------------------------------------------------------------------------------------------------------- */

/* A line's next 8 output channels; `channels` are left to compute. */
typedef struct {
    const NeutronLine *line;
    int32_t inputs; /* of a pixel */
    const int8_t *weights;
    const NeutronRequantBlock *table;
    NeutronRescaleNeon rescale;
    NeutronRescaleKind kind;
    NeutronRangeNeon range;
    uint8_t *out;
    int32_t channels;
} Block;

static NEUTRON_INLINE void store(const Block *block, const Sums *sums, uint8_t *out, const Form form, const int pixels,
                                 const NeutronRescaleKind kind) {
    int32x4_t y[NEUTRON_PIXELS_DOT][2];
    NEUTRON_UNROLL
    for (int p = 0; p < pixels; p++) {
        fold(y[p], &sums[p], &block->rescale, form);
        NEUTRON_UNROLL
        for (int half = 0; half < 2; half++) {
            y[p][half] = kind == NEUTRON_RESCALE_ONCE ? neutron_rounded_once_neon(y[p][half], block->table, half)
                                                      : neutron_rescaled_neon(y[p][half], &block->rescale, half, kind);
        }
    }
    NEUTRON_UNROLL
    for (int p = 0; p < pixels; p += 2) {
        const bool two = p + 1 < pixels;
        const uint64x2_t bytes = vreinterpretq_u64_s8(neutron_stored_neon(y[p], y[two ? p + 1 : p], &block->range));
        neutron_store_eight(out, vgetq_lane_u64(bytes, 0), block->channels);
        out += block->line->out_pitch;
        if (two) neutron_store_eight(out, vgetq_lane_u64(bytes, 1), block->channels);
        out += block->line->out_pitch;
    }
}

/* Pixels [first, first + pixels) of the line. */
static NEUTRON_INLINE void compute_tile(const Block *block, int64_t first, const Form form, const int pixels) {
    const NeutronLine *line = block->line;
    Sums sums[NEUTRON_PIXELS_DOT];
    begin(sums, &block->rescale, form, pixels);
    add_inputs(sums, block->weights, line->in + first * line->in_pitch, line->in_pitch, block->inputs, form, pixels);
    uint8_t *out = block->out + first * line->out_pitch;
    switch (block->kind) {
        case NEUTRON_RESCALE_FROM_ZERO: store(block, sums, out, form, pixels, NEUTRON_RESCALE_FROM_ZERO); break;
        case NEUTRON_RESCALE_ANY: store(block, sums, out, form, pixels, NEUTRON_RESCALE_ANY); break;
        default: store(block, sums, out, form, pixels, NEUTRON_RESCALE_ONCE);
    }
}

/* A line's last tile begins among the pixels that the tile before it has computed, where that saves smaller tiles. */
NEUTRON_DOT_PRODUCT static NEUTRON_INLINE void compute_tiles_dot(const Block *block) {
    const int64_t pixels = block->line->pixels;
    int64_t done = 0;
    while (done < pixels) {
        const int64_t left = pixels - done;
        if (left > 4 && pixels >= 8) {
            compute_tile(block, left < 8 ? pixels - 8 : done, DOT, 8);
            done += 8;
        } else if (left > 2 && pixels >= 4) {
            compute_tile(block, left < 4 ? pixels - 4 : done, DOT, 4);
            done += 4;
        } else if (left > 1) {
            compute_tile(block, done, DOT, 2);
            done += 2;
        } else {
            compute_tile(block, done, DOT_OF_ONE, 1);
            done++;
        }
    }
}

static NEUTRON_INLINE void compute_tiles(const Block *block) {
    const int64_t pixels = block->line->pixels;
    int64_t done = 0;
    while (done < pixels) {
        const int64_t left = pixels - done;
        if (left > 1 && pixels >= NEUTRON_PIXELS_NEON) {
            compute_tile(block, left < NEUTRON_PIXELS_NEON ? pixels - NEUTRON_PIXELS_NEON : done, PAIRS, NEUTRON_PIXELS_NEON);
            done += NEUTRON_PIXELS_NEON;
        } else {
            compute_tile(block, done, PAIRS, 1);
            done++;
        }
    }
}

static NEUTRON_INLINE void prepare(Block *block, const NeutronConv2dS8 *p) {
    if (p->single_rounding != 0) {
        block->rescale.bias[0] = vld1q_s32(block->table->bias);
        block->rescale.bias[1] = vld1q_s32(block->table->bias + 4);
        block->kind = NEUTRON_RESCALE_ONCE;
    } else {
        block->rescale = neutron_rescale_neon(block->table);
        block->kind = neutron_rescale_kind(p, &block->rescale);
    }
}

static NEUTRON_INLINE void next(Block *block, size_t block_bytes) {
    block->weights += block_bytes;
    block->table++;
    block->out += NEUTRON_LANES;
    block->channels -= NEUTRON_LANES;
}

/* ---- a single pixel ------------------------------------------------------------------------------------------------- */

/* The products of one pixel for this number of blocks, which share the loads of the inputs. */
static NEUTRON_INLINE void add_pixel(Sums *sums, const int8_t *weights, size_t block_bytes, const uint8_t *from, int32_t bytes,
                                     const int blocks) {
    enum { BLOCK = NEUTRON_LANES * NEUTRON_LANES };
    for (; bytes >= 16; bytes -= 16, from += 16, weights += 2 * BLOCK) {
        const int64x2_t inputs = vreinterpretq_s64_u8(vld1q_u8(from));
        const int8x16_t x[2] = {vreinterpretq_s8_s64(vdupq_laneq_s64(inputs, 0)),
                                vreinterpretq_s8_s64(vdupq_laneq_s64(inputs, 1))};
        NEUTRON_UNROLL
        for (int b = 0; b < blocks; b++) {
            NEUTRON_UNROLL
            for (int i = 0; i < 8; i++) {
                const int8x16_t two = vld1q_s8(weights + (size_t)b * block_bytes + 16 * i);
                NEUTRON_ADD_DOTS_OF_LANES(sums[b].part[i % 4], two, x[i / 4]);
            }
        }
    }
    for (; bytes > 0; bytes -= 8, from += 8, weights += BLOCK) {
        const int8x16_t x = twice(from, bytes);
        NEUTRON_UNROLL
        for (int b = 0; b < blocks; b++) {
            NEUTRON_UNROLL
            for (int i = 0; i < 4; i++) {
                const int8x16_t two = vld1q_s8(weights + (size_t)b * block_bytes + 16 * i);
                NEUTRON_ADD_DOTS_OF_LANES(sums[b].part[i], two, x);
            }
        }
    }
}

/* The stored values of two blocks from the first one on, or of one. */
static NEUTRON_INLINE int8x16_t pixel_of_blocks(const Block *block, const NeutronConv2dS8 *p, size_t block_bytes,
                                                const int blocks) {
    Sums sums[2];
    int32x4_t y[2][2];
    begin(sums, NULL, DOT_OF_ONE, blocks);
    add_pixel(sums, block->weights, block_bytes, block->line->in, block->inputs, blocks);
    NEUTRON_UNROLL
    for (int b = 0; b < blocks; b++) {
        Block of = *block;
        of.table += b;
        prepare(&of, p);
        fold(y[b], &sums[b], &of.rescale, DOT_OF_ONE);
        NEUTRON_UNROLL
        for (int half = 0; half < 2; half++) {
            y[b][half] = of.kind == NEUTRON_RESCALE_ONCE
                             ? neutron_rounded_once_neon(y[b][half], of.table, half)
                             : neutron_rescaled_neon(y[b][half], &of.rescale, half, NEUTRON_RESCALE_ANY);
        }
    }
    return neutron_stored_neon(y[0], y[blocks - 1], &block->range);
}

NEUTRON_DOT_PRODUCT static void compute_pixel_dot(Block *block, const NeutronConv2dS8 *p, size_t block_bytes) {
    while (block->channels > NEUTRON_LANES) {
        const uint64x2_t bytes = vreinterpretq_u64_s8(pixel_of_blocks(block, p, block_bytes, 2));
        neutron_store_eight(block->out, vgetq_lane_u64(bytes, 0), NEUTRON_LANES);
        neutron_store_eight(block->out + NEUTRON_LANES, vgetq_lane_u64(bytes, 1), block->channels - NEUTRON_LANES);
        next(block, block_bytes);
        next(block, block_bytes);
    }
    if (block->channels > 0) {
        const int8x16_t bytes = pixel_of_blocks(block, p, block_bytes, 1);
        neutron_store_eight(block->out, vgetq_lane_u64(vreinterpretq_u64_s8(bytes), 0), block->channels);
    }
}

/* ---- lines ---------------------------------------------------------------------------------------------------------- */

NEUTRON_DOT_PRODUCT static void compute_line_dot(Block *block, const NeutronConv2dS8 *p, size_t block_bytes) {
    for (; block->channels > 0; next(block, block_bytes)) {
        prepare(block, p);
        compute_tiles_dot(block);
    }
}

static void compute_line(Block *block, const NeutronConv2dS8 *p, size_t block_bytes) {
    for (; block->channels > 0; next(block, block_bytes)) {
        prepare(block, p);
        compute_tiles(block);
    }
}

void neutron_compute_line_neon(const NeutronConv2dS8 *p, const NeutronLine *line, int32_t inputs, const int8_t *weights,
                               size_t block_bytes, const NeutronRequantBlock *table, int32_t channels) {
    Block block = {
        .line = line,
        .inputs = inputs,
        .weights = weights,
        .table = table,
        .range = neutron_range_neon(p),
        .out = line->out,
        .channels = channels,
    };
    if (!neutron_has_dot_product()) {
        compute_line(&block, p, block_bytes);
    } else if (line->pixels == 1) {
        compute_pixel_dot(&block, p, block_bytes);
    } else {
        compute_line_dot(&block, p, block_bytes);
    }
}

#endif
