/* SPDX-License-Identifier: BSD-3-Clause */
/* Products of 16 rows of a matrix (matrix.h) with rows of integers, by the dot product extension of Armv8.2.
 *
 * Of several rows of integers, tiles of 4 rows of weights and 4 of integers are in registers. A piece of the columns goes through all tiles
 * before the next one, so that its integers stay in the cache of the core. A single row of integers is multiplied as 4-bit weights are decoded. */
#ifndef NEUTRON_MATRIX_NEON_H
#define NEUTRON_MATRIX_NEON_H

#include "matrix.h"

#if NEUTRON_VECTORS && defined(__aarch64__)

#include "dot_neon.h"

/* A function that has all registers for itself. GCC would begin so much at once that they did not suffice. */
#if defined(__clang__)
#define NEUTRON_APART __attribute__((noinline))
#else
#define NEUTRON_APART __attribute__((noinline, optimize("no-schedule-insns")))
#endif

enum {
    NEUTRON_DOT_ROWS = 16, /* of weights */
    NEUTRON_DOT_TOKENS = 4,
    NEUTRON_DOT_EIGHT = 8,
    NEUTRON_DOT_PIECE = 512 /* columns, a multiple of every group */
};

/* Rows of integers, `pitch` bytes apart. */
typedef struct {
    const int8_t *from;
    size_t pitch;
    int32_t count;
} NeutronIntegers;

/* Adds the products of 16 * `steps` columns, of some rows of weights and of integers. */
static NEUTRON_INLINE void neutron_add_columns(int32x4_t (*parts)[NEUTRON_DOT_EIGHT], const int8_t *const *weights, const int8_t *integers,
                                               size_t pitch, int32_t k, const int rows, const int tokens, const int steps) {
    int8x16_t x[NEUTRON_DOT_TOKENS][2];
    NEUTRON_UNROLL
    for (int t = 0; t < tokens; t++) {
        NEUTRON_UNROLL
        for (int i = 0; i < steps; i++) x[t][i] = vld1q_s8(integers + (size_t)t * pitch + k + NEUTRON_MATRIX_STEP * i);
    }
    NEUTRON_UNROLL
    for (int r = 0; r < rows; r++) {
        int8x16_t w[2];
        NEUTRON_UNROLL
        for (int i = 0; i < steps; i++) w[i] = vld1q_s8(weights[r] + k + NEUTRON_MATRIX_STEP * i);
        NEUTRON_UNROLL
        for (int i = 0; i < steps; i++) {
            NEUTRON_UNROLL
            for (int t = 0; t < tokens; t++) NEUTRON_ADD_DOTS_OF_LANES(parts[t][r], w[i], x[t][i]);
        }
    }
}

/* Adds the products of some rows of weights and of integers to the sums of each row of integers. */
static NEUTRON_INLINE void neutron_add_tile(int32_t *sums, const int8_t *const *weights, const int8_t *integers, size_t pitch, int32_t columns,
                                            const int rows, const int tokens) {
    int32x4_t parts[NEUTRON_DOT_TOKENS][NEUTRON_DOT_EIGHT];
    const int8_t *from[NEUTRON_DOT_EIGHT];
    NEUTRON_UNROLL
    for (int r = 0; r < rows; r++) from[r] = weights[r];
    NEUTRON_UNROLL
    for (int t = 0; t < tokens; t++) {
        NEUTRON_UNROLL
        for (int r = 0; r < rows; r++) parts[t][r] = vdupq_n_s32(0);
    }
    int32_t k = 0;
    for (; k + 2 * NEUTRON_MATRIX_STEP <= columns; k += 2 * NEUTRON_MATRIX_STEP) {
        neutron_add_columns(parts, from, integers, pitch, k, rows, tokens, 2);
    }
    if (k < columns) neutron_add_columns(parts, from, integers, pitch, k, rows, tokens, 1);
    NEUTRON_UNROLL
    for (int t = 0; t < tokens; t++) {
        NEUTRON_UNROLL
        for (int r = 0; r < rows; r += 4) {
            const int32x4_t four = vpaddq_s32(vpaddq_s32(parts[t][r], parts[t][r + 1]), vpaddq_s32(parts[t][r + 2], parts[t][r + 3]));
            int32_t *to = sums + t * NEUTRON_DOT_ROWS + r;
            vst1q_s32(to, vaddq_s32(vld1q_s32(to), four));
        }
    }
}

/* 16 rows of weights and 4 of integers, or one. */
NEUTRON_APART NEUTRON_DOT_PRODUCT static void neutron_add_four(int32_t *sums, const int8_t *const *weights, const int8_t *integers, size_t pitch,
                                                               int32_t columns) {
    for (int32_t r = 0; r < NEUTRON_DOT_ROWS; r += 4) neutron_add_tile(sums + r, weights + r, integers, pitch, columns, 4, NEUTRON_DOT_TOKENS);
}

NEUTRON_APART NEUTRON_DOT_PRODUCT static void neutron_add_one(int32_t *sums, const int8_t *const *weights, const int8_t *integers, int32_t columns) {
    for (int32_t r = 0; r < NEUTRON_DOT_ROWS; r += NEUTRON_DOT_EIGHT) {
        neutron_add_tile(sums + r, weights + r, integers, 0, columns, NEUTRON_DOT_EIGHT, 1);
    }
}

/* Columns of 16 rows of weights and of all rows of integers, from column k on. */
static NEUTRON_INLINE void neutron_add_tiles(int32_t *sums, const int8_t *const *weights, const NeutronIntegers *integers, int32_t k,
                                             int32_t columns) {
    int32_t t = 0;
    for (; t + NEUTRON_DOT_TOKENS <= integers->count; t += NEUTRON_DOT_TOKENS) {
        const int8_t *from = integers->from + (size_t)t * integers->pitch + k;
        neutron_add_four(sums + t * NEUTRON_DOT_ROWS, weights, from, integers->pitch, columns);
    }
    for (; t < integers->count; t++) {
        neutron_add_one(sums + t * NEUTRON_DOT_ROWS, weights, integers->from + (size_t)t * integers->pitch + k, columns);
    }
}

/* ---- int8 weights ------------------------------------------------------------------------------------------------- */

/* Rows from `rows` on are not there, and others are multiplied in their place. */
static NEUTRON_INLINE void neutron_add_products_8(int32_t *sums, const NeutronMatrixWords *m, const NeutronMatrixPart *part, int32_t row,
                                                  int32_t rows, const NeutronIntegers *integers) {
    NeutronMatrixRow found[NEUTRON_DOT_ROWS];
    for (int32_t r = 0; r < NEUTRON_DOT_ROWS; r++) found[r] = neutron_matrix_row(m, part, row + (r < rows ? r : rows - 1));
    /* A single row of integers stays in the cache. */
    const int32_t most = integers->count == 1 ? NEUTRON_MATRIX_MOST_INPUTS : NEUTRON_DOT_PIECE;
    for (int32_t k = 0; k < part->inputs;) {
        const int8_t *weights[NEUTRON_DOT_ROWS];
        int32_t columns = most;
        for (int32_t r = 0; r < NEUTRON_DOT_ROWS; r++) {
            const int32_t there = neutron_matrix_columns(part, &found[r], k, &weights[r]);
            columns = there < columns ? there : columns;
        }
        neutron_add_tiles(sums, weights, integers, k, columns);
        k += columns;
    }
}

/* ---- int4 weights ------------------------------------------------------------------------------------------------- */

/* A group of 8 rows: 8 bytes of each row for 16 columns, `pitch` bytes from those to the next. The integers of the weights are multiplied by those
 * of a row, or written to rows of NEUTRON_DOT_PIECE. */
typedef struct {
    const uint8_t *from;
    size_t pitch;
    int32_t columns;
    const int8_t *integers;
    int8_t *to;
} NeutronEightRows;

/* Rows 4 * j to 4 * j + 3, by their tables. Results that do not wait for each other follow each other, as cores without reordering need it. */
static NEUTRON_INLINE void neutron_take_four(int32x4_t *parts, const NeutronEightRows *of, int j, const int8x16_t *tables, const bool writes) {
    const uint8_t *from = of->from + 32 * j;
    for (int32_t i = 0; i < of->columns; i += NEUTRON_MATRIX_STEP, from += of->pitch) {
        const uint8x16_t bytes[2] = {vld1q_u8(from), vld1q_u8(from + 16)};
        uint8x16_t low[2], high[2];
        int8x16_t rows[4];
        NEUTRON_UNROLL
        for (int two = 0; two < 2; two++) {
            low[two] = vandq_u8(bytes[two], vdupq_n_u8(15));
            high[two] = vshrq_n_u8(bytes[two], 4);
        }
        NEUTRON_UNROLL
        for (int r = 0; r < 4; r++) rows[r] = vreinterpretq_s8_u8(r % 2 == 0 ? vzip1q_u8(low[r / 2], high[r / 2]) : vzip2q_u8(low[r / 2], high[r / 2]));
        NEUTRON_UNROLL
        for (int r = 0; r < 4; r++) rows[r] = vqtbl1q_s8(tables[r], vreinterpretq_u8_s8(rows[r]));
        const int8x16_t x = writes ? rows[0] : vld1q_s8(of->integers + i);
        NEUTRON_UNROLL
        for (int r = 0; r < 4; r++) {
            if (writes) {
                vst1q_s8(of->to + (4 * j + r) * NEUTRON_DOT_PIECE + i, rows[r]);
            } else {
                NEUTRON_ADD_DOTS_OF_LANES(parts[4 * j + r], rows[r], x);
            }
        }
    }
}

/* The tables of 8 rows by the general rule. */
NEUTRON_APART static void neutron_any_tables(int8x16_t *tables, const uint8_t *scales, const int8_t *biases) {
    for (int r = 0; r < NEUTRON_DOT_EIGHT; r++) {
        NeutronNibbles row;
        neutron_set_scale(&row, scales + 2 * r, biases[r]);
        tables[r] = neutron_decode_table(&row);
    }
}

/* A group of 8 rows. Where (weight + bias) * mantissa * 2^-shift is (weight + bias) * 2^5 * factor * 2^-15 for int16 factors, as it is for
 * shifts from 5 to 10, tables are products of int16, which the instruction rounds half up after 15 bits. The first values of a table are those
 * of weights from 0 to 7. */
static NEUTRON_INLINE void neutron_take_eight(int32x4_t *parts, const NeutronEightRows *of, const uint8_t *scales, const int8_t *biases,
                                              const bool writes) {
    static const int16_t weights[16] = {0, 32, 64, 96, 128, 160, 192, 224, -256, -224, -192, -160, -128, -96, -64, -32};
    const uint16x8_t words = vreinterpretq_u16_u8(vld1q_u8(scales)), mantissas = vandq_u16(words, vdupq_n_u16(1023));
    const int16x8_t left = vsubq_s16(vdupq_n_s16(10), vreinterpretq_s16_u16(vshrq_n_u16(words, 10)));
    const uint16x8_t factors = vandq_u16(vshlq_u16(mantissas, left), vdupq_n_u16(INT16_MAX));
    const uint16x8_t lost = veorq_u16(vshlq_u16(factors, vnegq_s16(left)), mantissas);
    int8x16_t tables[NEUTRON_DOT_EIGHT];
    if (vmaxvq_u16(lost) != 0) {
        neutron_any_tables(tables, scales, biases);
        for (int j = 0; j < 2; j++) neutron_take_four(parts, of, j, tables + 4 * j, writes);
        return;
    }
    const int16x8_t low = vld1q_s16(weights), high = vld1q_s16(weights + 8), factor = vreinterpretq_s16_u16(factors);
    const int16x8_t bias = vshll_n_s8(vld1_s8(biases), 5);
    int16x8_t lows[4], highs[4];
#define NEUTRON_FOR_ROWS(work, a, b, c, d) work(0, a) work(1, b) work(2, c) work(3, d)
#define NEUTRON_SUM(i, r) highs[i] = vdupq_laneq_s16(bias, r);
#define NEUTRON_SUMS(i, r) lows[i] = vaddq_s16(highs[i], low), highs[i] = vaddq_s16(highs[i], high);
#define NEUTRON_PRODUCTS(i, r) lows[i] = vqrdmulhq_laneq_s16(lows[i], factor, r), highs[i] = vqrdmulhq_laneq_s16(highs[i], factor, r);
#define NEUTRON_TAKE(j, ...)                           \
    NEUTRON_FOR_ROWS(NEUTRON_SUM, __VA_ARGS__)         \
    NEUTRON_FOR_ROWS(NEUTRON_SUMS, __VA_ARGS__)        \
    NEUTRON_FOR_ROWS(NEUTRON_PRODUCTS, __VA_ARGS__)    \
    NEUTRON_UNROLL                                     \
    for (int i = 0; i < 4; i++) tables[i] = vqmovn_high_s16(vqmovn_s16(lows[i]), highs[i]); \
    neutron_take_four(parts, of, j, tables, writes);
    NEUTRON_TAKE(0, 0, 1, 2, 3)
    NEUTRON_TAKE(1, 4, 5, 6, 7)
#undef NEUTRON_TAKE
#undef NEUTRON_PRODUCTS
#undef NEUTRON_SUMS
#undef NEUTRON_SUM
#undef NEUTRON_FOR_ROWS
}

/* The groups of 8 rows from column k on; `columns` are whole groups. */
static NEUTRON_INLINE void neutron_take_groups(int32x4_t *parts, const NeutronMatrixRow *row, NeutronEightRows of, int32_t k, int32_t columns,
                                               const bool writes) {
    size_t decode = (size_t)(k / of.columns) * row->decode_pitch;
    of.from = row->from + (size_t)(k / NEUTRON_MATRIX_STEP) * row->pitch;
    of.pitch = row->pitch;
    for (int32_t i = 0; i < columns; i += of.columns, decode += row->decode_pitch) {
        neutron_take_eight(parts, &of, row->decode_scales + 2 * decode, row->decode_biases + decode, writes);
        of.from += (size_t)(of.columns / NEUTRON_MATRIX_STEP) * row->pitch;
        if (writes) {
            of.to += of.columns;
        } else {
            of.integers += of.columns;
        }
    }
}

/* Adds the products of 8 rows with one row of integers. `group`: 32, or any. */
static NEUTRON_INLINE void neutron_add_one_4(int32_t *sums, const NeutronMatrixPart *part, const NeutronMatrixRow *row, const int8_t *integers,
                                             const int32_t group) {
    int32x4_t parts[NEUTRON_DOT_EIGHT];
    NEUTRON_UNROLL
    for (int r = 0; r < NEUTRON_DOT_EIGHT; r++) parts[r] = vdupq_n_s32(0);
    neutron_take_groups(parts, row, (NeutronEightRows){.columns = group, .integers = integers}, 0, part->inputs, false);
    NEUTRON_UNROLL
    for (int r = 0; r < NEUTRON_DOT_EIGHT; r += 4) {
        const int32x4_t four = vpaddq_s32(vpaddq_s32(parts[r], parts[r + 1]), vpaddq_s32(parts[r + 2], parts[r + 3]));
        vst1q_s32(sums + r, vaddq_s32(vld1q_s32(sums + r), four));
    }
}

NEUTRON_APART NEUTRON_DOT_PRODUCT static void neutron_add_one_of_32(int32_t *sums, const NeutronMatrixPart *part, const NeutronMatrixRow *row,
                                                                    const int8_t *integers) {
    neutron_add_one_4(sums, part, row, integers, 32);
}

NEUTRON_APART NEUTRON_DOT_PRODUCT static void neutron_add_one_of_any(int32_t *sums, const NeutronMatrixPart *part, const NeutronMatrixRow *row,
                                                                     const int8_t *integers, int32_t group) {
    neutron_add_one_4(sums, part, row, integers, group);
}

/* Writes 8 rows of integers. */
NEUTRON_APART NEUTRON_DOT_PRODUCT static void neutron_decode_eight(int8_t *to, const NeutronMatrixRow *row, int32_t group, int32_t k,
                                                                   int32_t columns) {
    if (group == 32) {
        neutron_take_groups(NULL, row, (NeutronEightRows){.columns = 32, .to = to}, k, columns, true);
    } else {
        neutron_take_groups(NULL, row, (NeutronEightRows){.columns = group, .to = to}, k, columns, true);
    }
}

/* Runs of int4 weights have whole blocks of 16 rows. */
static NEUTRON_INLINE void neutron_add_products_4(int32_t *sums, const NeutronMatrixWords *m, const NeutronMatrixPart *part, int32_t row,
                                                  const NeutronIntegers *integers) {
    const NeutronMatrixRow eights[] = {neutron_matrix_row(m, part, row), neutron_matrix_row(m, part, row + NEUTRON_DOT_EIGHT)};
    if (integers->count == 1) {
        for (int i = 0; i < 2; i++) {
            int32_t *to = sums + i * NEUTRON_DOT_EIGHT;
            if (m->group == 32) {
                neutron_add_one_of_32(to, part, &eights[i], integers->from);
            } else {
                neutron_add_one_of_any(to, part, &eights[i], integers->from, m->group);
            }
        }
        return;
    }
    int8_t decoded[NEUTRON_DOT_ROWS * NEUTRON_DOT_PIECE];
    const int8_t *weights[NEUTRON_DOT_ROWS];
    for (int r = 0; r < NEUTRON_DOT_ROWS; r++) weights[r] = decoded + r * NEUTRON_DOT_PIECE;
    for (int32_t k = 0; k < part->inputs; k += NEUTRON_DOT_PIECE) {
        const int32_t left = part->inputs - k, columns = left < NEUTRON_DOT_PIECE ? left : NEUTRON_DOT_PIECE;
        for (int i = 0; i < 2; i++) {
            neutron_decode_eight(decoded + i * NEUTRON_DOT_EIGHT * NEUTRON_DOT_PIECE, &eights[i], m->group, k, columns);
        }
        neutron_add_tiles(sums, weights, integers, k, columns);
    }
}

/* ---- both --------------------------------------------------------------------------------------------------------- */

/* Adds the products of `rows` rows of a part, from row `row` on, a multiple of 16, to the sums of each row of integers: 16 words, of which those
 * from `rows` on have no meaning. */
static NEUTRON_INLINE void neutron_add_products_dot(int32_t *sums, const NeutronMatrixWords *m, const NeutronMatrixPart *part, int32_t row,
                                                    int32_t rows, const NeutronIntegers *integers) {
    if (m->bits == 8) {
        neutron_add_products_8(sums, m, part, row, rows, integers);
    } else {
        neutron_add_products_4(sums, m, part, row, integers);
    }
}

#endif
#endif
