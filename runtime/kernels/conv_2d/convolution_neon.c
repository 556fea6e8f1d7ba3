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
    if (count >= 8) return vreinterpretq_s8_s64(vld1q_dup_s64((const int64_t *)(const void *)from));
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

/* Adds the products of a run; returns the weights behind it. */
static NEUTRON_INLINE const int8_t *add_run(Sums *sums, const int8_t *weights, const uint8_t *run, ptrdiff_t pitch,
                                            int32_t bytes, const Form form, const int pixels) {
    enum { BLOCK = NEUTRON_LANES * NEUTRON_LANES };
    const uint8_t *from[NEUTRON_PIXELS_DOT];
    NEUTRON_UNROLL
    for (int p = 0; p < pixels; p++) from[p] = run + p * pitch;
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
    if (bytes > 0) {
        add_8(sums, weights, from, bytes, form, pixels);
        weights += BLOCK;
    }
    return weights;
}

/* ---- tiles ---------------------------------------------------------------------------------------------------------- */

/* A line's 8 output channels, of which `channels` are stored. */
typedef struct {
    const NeutronRunsNeon *line;
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
            y[p][half] = kind == NEUTRON_RESCALE_ONCE ? neutron_rescaled_once_neon(y[p][half], block->table, half)
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
static NEUTRON_INLINE void compute_tile(const Block *block, int32_t first, const Form form, const int pixels) {
    const NeutronRunsNeon *line = block->line;
    const int8_t *weights = block->weights;
    Sums sums[NEUTRON_PIXELS_DOT];
    begin(sums, &block->rescale, form, pixels);
    for (int32_t i = 0; i < line->runs; i++) {
        weights = add_run(sums, weights, line->from[i] + first * line->in_pitch, line->in_pitch, line->run_bytes, form, pixels);
    }
    uint8_t *out = block->out + first * line->out_pitch;
    switch (block->kind) {
        case NEUTRON_RESCALE_FROM_ZERO: store(block, sums, out, form, pixels, NEUTRON_RESCALE_FROM_ZERO); break;
        case NEUTRON_RESCALE_ANY: store(block, sums, out, form, pixels, NEUTRON_RESCALE_ANY); break;
        default: store(block, sums, out, form, pixels, NEUTRON_RESCALE_ONCE);
    }
}

/* A line's last tile begins among the pixels that the tile before it has computed, where that saves smaller tiles. */
NEUTRON_DOT_PRODUCT static void compute_block_dot(const Block *block) {
    const int32_t pixels = block->line->pixels;
    int32_t done = 0;
    while (done < pixels) {
        const int32_t left = pixels - done;
        if (left > 4 && pixels >= 8) {
            compute_tile(block, left < 8 ? pixels - 8 : done, DOT, 8);
            done += 8;
        } else if (left > 1 && pixels >= 4) {
            compute_tile(block, left < 4 ? pixels - 4 : done, DOT, 4);
            done += 4;
        } else {
            compute_tile(block, done, DOT_OF_ONE, 1);
            done++;
        }
    }
}

static void compute_block_neon(const Block *block) {
    const int32_t pixels = block->line->pixels;
    int32_t done = 0;
    while (done < pixels) {
        const int32_t left = pixels - done;
        if (left > 1 && pixels >= NEUTRON_PIXELS_NEON) {
            compute_tile(block, left < NEUTRON_PIXELS_NEON ? pixels - NEUTRON_PIXELS_NEON : done, PAIRS, NEUTRON_PIXELS_NEON);
            done += NEUTRON_PIXELS_NEON;
        } else {
            compute_tile(block, done, PAIRS, 1);
            done++;
        }
    }
}

void neutron_compute_line_neon(const NeutronConv2dS8 *p, const NeutronRunsNeon *line, const int8_t *weights,
                               size_t block_bytes, const NeutronRequantBlock *table, int32_t channels) {
    const bool dot = neutron_has_dot_product();
    Block block = {.line = line, .weights = weights, .table = table, .range = neutron_range_neon(p), .out = line->out};
    for (int32_t k = 0; k < channels; k += NEUTRON_LANES) {
        block.channels = channels - k;
        block.rescale = neutron_rescale_neon(block.table);
        block.kind = neutron_rescale_kind(p, &block.rescale);
        (dot ? compute_block_dot : compute_block_neon)(&block);
        block.weights += block_bytes;
        block.table++;
        block.out += NEUTRON_LANES;
    }
}

#endif
