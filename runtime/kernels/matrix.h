/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrices of 8-bit or 4-bit weights, in parts of their columns, in the order that a job has (src/openneutron/device/neutron_jobs.py).
 *
 * A part is [matrix_rows, its inputs] in blocks of `cores` runs of `block` rows. The runs take turns: 256 bytes of each of int8 weights, 128 of
 * int4 weights. A run of int8 weights has row after row; one of int4 weights has 16 columns of each row, the next 16 of each row, and so on.
 * Behind the int4 weights are an int16 scale and an int8 bias for each group of columns of a row, in each run group by group, then lengths. */
#ifndef NEUTRON_MATRIX_H
#define NEUTRON_MATRIX_H

#include "language.h"

#if NEUTRON_VECTORS && defined(__x86_64__)
#include "x86.h"
#elif NEUTRON_VECTORS && defined(__aarch64__)
#include <arm_neon.h>
#endif

enum {
    NEUTRON_MATRIX_STEP = 16,
    NEUTRON_MATRIX_TURN = 256,
    NEUTRON_MATRIX_TURN_4 = 128,
    NEUTRON_MATRIX_DECODE_TURN = 8192,
    NEUTRON_MATRIX_MOST_INPUTS = 131072, /* sums of so many products are below 2^31 */
    NEUTRON_MATRIX_MOST_GROUP = 128,
    NEUTRON_MATRIX_DECODED = 256 /* a multiple of every group */
};

/* The words of a matrix in a parameter block, from `inputs` on. */
typedef struct {
    int32_t inputs, bits, group, part_inputs, matrix_rows, cores, block, last_cores, last_block;
    uint32_t weights_base, weights_offset, scales_base, scales_offset;
} NeutronMatrixWords;

/* A part of the columns. */
typedef struct {
    const uint8_t *weights, *decode_scales;
    const int8_t *decode_biases;
    int32_t inputs, cores, block;
} NeutronMatrixPart;

static inline int32_t neutron_matrix_step(const NeutronMatrixWords *m) { return m->bits == 4 ? m->group : NEUTRON_MATRIX_STEP; }

/* The inputs of all parts: those of the layer and zeros. */
static inline int32_t neutron_matrix_inputs(const NeutronMatrixWords *m) {
    const int32_t step = neutron_matrix_step(m);
    return (m->inputs + step - 1) & ~(step - 1);
}

static inline int32_t neutron_matrix_parts(const NeutronMatrixWords *m) {
    return (neutron_matrix_inputs(m) + m->part_inputs - 1) / m->part_inputs;
}

static inline uint64_t neutron_matrix_part_bytes(const NeutronMatrixWords *m, int32_t inputs) {
    const uint64_t rows = (uint64_t)m->matrix_rows, values = rows * (uint64_t)inputs;
    if (m->bits == 8) return values;
    const uint64_t lengths = (rows / NEUTRON_MATRIX_STEP * sizeof(int32_t) + NEUTRON_ALIGNMENT - 1) & ~(uint64_t)(NEUTRON_ALIGNMENT - 1);
    return values / 2 + 3 * (values / (uint64_t)m->group) + lengths;
}

static inline bool neutron_matrix_turns_are_sound(const NeutronMatrixWords *m, int32_t inputs, int32_t cores, int32_t block) {
    if (cores < 1 || block < 1 || m->matrix_rows % ((int64_t)cores * block) != 0) return false;
    if (m->bits == 8) return cores == 1 || block % NEUTRON_MATRIX_STEP == 0;
    /* Runs of scales that are longer would take several turns; no job has them. */
    return block % NEUTRON_MATRIX_STEP == 0 &&
           (cores == 1 || (int64_t)block * (inputs / m->group) * (int64_t)sizeof(int16_t) <= NEUTRON_MATRIX_DECODE_TURN);
}

/* The weights, and the scales of the first `rows` rows, are there. */
static inline bool neutron_matrix_is_sound(const NeutronProgramView *program, const NeutronMatrixWords *m, int32_t rows) {
    if (m->bits == 8 ? m->group != 0 : m->bits != 4 || (m->group != 32 && m->group != 64 && m->group != NEUTRON_MATRIX_MOST_GROUP)) {
        return false;
    }
    if (m->inputs < 1 || m->inputs > NEUTRON_MATRIX_MOST_INPUTS || m->part_inputs < 1 || m->part_inputs > NEUTRON_MATRIX_MOST_INPUTS ||
        m->part_inputs % neutron_matrix_step(m) != 0 || rows < 1 || m->matrix_rows < rows) {
        return false;
    }
    const int32_t parts = neutron_matrix_parts(m), last = neutron_matrix_inputs(m) - (parts - 1) * m->part_inputs;
    const uint64_t size = (uint64_t)(parts - 1) * neutron_matrix_part_bytes(m, m->part_inputs) + neutron_matrix_part_bytes(m, last);
    return (parts == 1 || neutron_matrix_turns_are_sound(m, m->part_inputs, m->cores, m->block)) &&
           neutron_matrix_turns_are_sound(m, last, m->last_cores, m->last_block) &&
           neutron_range_is_sound(program, m->weights_base, m->weights_offset, size, NEUTRON_ALIGNMENT) &&
           neutron_floats_are_sound(program, m->scales_base, m->scales_offset, (uint64_t)rows);
}

static inline NeutronMatrixPart neutron_matrix_part(const NeutronBases *bases, const NeutronMatrixWords *m, int32_t part) {
    const bool is_last = part == neutron_matrix_parts(m) - 1;
    NeutronMatrixPart found = {
        .weights = neutron_base_address(bases, m->weights_base) + m->weights_offset +
                   (size_t)part * (size_t)neutron_matrix_part_bytes(m, m->part_inputs),
        .inputs = is_last ? neutron_matrix_inputs(m) - part * m->part_inputs : m->part_inputs,
        .cores = is_last ? m->last_cores : m->cores,
        .block = is_last ? m->last_block : m->block,
    };
    if (m->bits == 4) {
        const size_t values = (size_t)m->matrix_rows * (size_t)found.inputs;
        found.decode_scales = found.weights + values / 2;
        found.decode_biases = (const int8_t *)(found.decode_scales + 2 * (values / (size_t)m->group));
    }
    return found;
}

/* The stored nibbles of a group of a row: 8 bytes for 16 columns, `pitch` bytes apart. */
typedef struct {
    const uint8_t *from;
    size_t pitch;
    int32_t columns, mantissa, shift, bias;
} NeutronNibbles;

/* Sets the scale of a group. */
static NEUTRON_INLINE void neutron_set_scale(NeutronNibbles *nibbles, const uint8_t *decode_scale, int8_t decode_bias) {
    uint16_t scale;
    memcpy(&scale, decode_scale, sizeof scale);
    nibbles->mantissa = scale & 1023;
    nibbles->shift = scale >> 10 > 30 ? 30 : scale >> 10; /* products are below 2^18: with 30 or more they are 0 */
    nibbles->bias = decode_bias;
}

/* Writes the integers of a group. */
typedef void (*NeutronDecode)(int8_t *to, const NeutronNibbles *of);

/* The NPU makes the integer (weight + bias) * mantissa * 2^-shift, rounded half up and saturated, of a weight from -8 to 7. The order of the
 * table is that of the stored nibbles: the integers of 0 to 7, then those of -8 to -1. */
static inline void neutron_decode(int8_t *to, const NeutronNibbles *of) {
    int8_t table[16];
    for (int32_t i = 0; i < 16; i++) {
        const int32_t weight = (i ^ 8) - 8, half = (1 << of->shift) >> 1;
        table[i] = (int8_t)neutron_bound(((weight + of->bias) * of->mantissa + half) >> of->shift, INT8_MIN, INT8_MAX);
    }
    const uint8_t *from = of->from;
    for (int32_t i = 0; i < of->columns; i += NEUTRON_MATRIX_STEP, from += of->pitch) {
        for (int32_t j = 0; j < 8; j++) {
            to[i + 2 * j] = table[from[j] & 15];
            to[i + 2 * j + 1] = table[from[j] >> 4];
        }
    }
}

#if NEUTRON_VECTORS && defined(__x86_64__)

NEUTRON_VECTOR static inline void neutron_decode_vector(int8_t *to, const NeutronNibbles *of) {
    const __m256i bias = _mm256_set1_epi32(of->bias), mantissa = _mm256_set1_epi32(of->mantissa);
    const __m256i half = _mm256_set1_epi32((1 << of->shift) >> 1);
    const __m128i shift = _mm_cvtsi32_si128(of->shift), mask = _mm_set1_epi8(15);
    __m256i low = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), bias);
    __m256i high = _mm256_add_epi32(_mm256_setr_epi32(-8, -7, -6, -5, -4, -3, -2, -1), bias);
    low = _mm256_sra_epi32(_mm256_add_epi32(_mm256_mullo_epi32(low, mantissa), half), shift);
    high = _mm256_sra_epi32(_mm256_add_epi32(_mm256_mullo_epi32(high, mantissa), half), shift);
    const __m128i table = _mm_packs_epi16(_mm_packs_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)),
                                          _mm_packs_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1)));
    const uint8_t *from = of->from;
    for (int32_t i = 0; i < of->columns; i += NEUTRON_MATRIX_STEP, from += of->pitch) {
        const __m128i bytes = _mm_loadl_epi64((const void *)from);
        const __m128i codes = _mm_unpacklo_epi8(_mm_and_si128(bytes, mask), _mm_and_si128(_mm_srli_epi16(bytes, 4), mask));
        _mm_storeu_si128((void *)(to + i), _mm_shuffle_epi8(table, codes));
    }
}

#elif NEUTRON_VECTORS && defined(__aarch64__)

static inline int8x8_t neutron_decoded_eight(const int32_t *weights, const NeutronNibbles *of) {
    const int32x4_t bias = vdupq_n_s32(of->bias), half = vdupq_n_s32((1 << of->shift) >> 1), shift = vdupq_n_s32(-of->shift);
    int16x4_t halves[2];
    for (int i = 0; i < 2; i++) {
        const int32x4_t weight = vaddq_s32(vld1q_s32(weights + 4 * i), bias);
        halves[i] = vqmovn_s32(vshlq_s32(vaddq_s32(vmulq_n_s32(weight, of->mantissa), half), shift));
    }
    return vqmovn_s16(vcombine_s16(halves[0], halves[1]));
}

static inline int8x16_t neutron_decode_table(const NeutronNibbles *of) {
    static const int32_t weights[16] = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
    return vcombine_s8(neutron_decoded_eight(weights, of), neutron_decoded_eight(weights + 8, of));
}

static inline void neutron_decode_vector(int8_t *to, const NeutronNibbles *of) {
    const int8x16_t table = neutron_decode_table(of);
    const uint8_t *from = of->from;
    for (int32_t i = 0; i < of->columns; i += NEUTRON_MATRIX_STEP, from += of->pitch) {
        const uint8x8_t bytes = vld1_u8(from);
        const uint8x8x2_t codes = vzip_u8(vand_u8(bytes, vdup_n_u8(15)), vshr_n_u8(bytes, 4));
        vst1q_s8(to + i, vqtbl1q_s8(table, vcombine_u8(codes.val[0], codes.val[1])));
    }
}

#else

NEUTRON_FOR_VECTORS(neutron_decode, (int8_t *to, const NeutronNibbles *of), (to, of))

#endif

/* A row of a part. */
typedef struct {
    const uint8_t *from; /* of int8 weights the core's first turn, of int4 weights the first 8 bytes */
    const uint8_t *decode_scales; /* of the first group */
    const int8_t *decode_biases;
    size_t first; /* the first byte of the row in its core's run */
    size_t pitch; /* of int4 weights, from 16 columns to the next */
    size_t decode_pitch; /* from a group to the next */
} NeutronMatrixRow;

static inline NeutronMatrixRow neutron_matrix_row(const NeutronMatrixWords *m, const NeutronMatrixPart *part, int32_t row) {
    const size_t cores = (size_t)part->cores, block = (size_t)part->block, inputs = (size_t)part->inputs;
    const size_t run = (size_t)row / block, in_run = (size_t)row % block, core = run % cores, first = run - core; /* of the block */
    NeutronMatrixRow found = {.first = in_run * inputs};
    if (m->bits == 8) {
        found.from = part->weights + first * block * inputs + core * NEUTRON_MATRIX_TURN;
        return found;
    }
    /* Runs have a multiple of 16 rows, so that a row is at the same place of each turn. */
    const size_t in_turn = in_run * 8 % NEUTRON_MATRIX_TURN_4, groups = inputs / (size_t)m->group;
    const size_t decode = run * block * groups + in_run;
    found.from = part->weights + first * block * inputs / 2 + (in_run * 8 - in_turn) * cores + core * NEUTRON_MATRIX_TURN_4 + in_turn;
    found.pitch = block * 8 * cores;
    found.decode_scales = part->decode_scales + 2 * decode;
    found.decode_biases = part->decode_biases + decode;
    found.decode_pitch = block;
    return found;
}

/* Columns of a row of int8 weights from column k on, a multiple of 16: sets where they are, and returns their number. */
static NEUTRON_INLINE int32_t neutron_matrix_columns(const NeutronMatrixPart *part, const NeutronMatrixRow *row, int32_t k,
                                                     const int8_t **values) {
    const size_t at = row->first + (size_t)k;
    const int32_t left = part->inputs - k;
    if (part->cores == 1) {
        *values = (const int8_t *)row->from + at;
        return left;
    }
    const size_t in_turn = at % NEUTRON_MATRIX_TURN;
    *values = (const int8_t *)row->from + (at - in_turn) * (size_t)part->cores + in_turn;
    const int32_t of_turn = (int32_t)(NEUTRON_MATRIX_TURN - in_turn);
    return left < of_turn ? left : of_turn;
}

/* Columns of a row of weights of 8 or 4 bits from column k on, a multiple of 16 or of the group. `buffer` has room for
 * NEUTRON_MATRIX_DECODED integers. */
static NEUTRON_INLINE int32_t neutron_matrix_piece(const NeutronMatrixWords *m, const NeutronMatrixPart *part, const NeutronMatrixRow *row,
                                                   int32_t k, NeutronDecode decode_group, int8_t *buffer, const int8_t **values) {
    if (m->bits == 8) return neutron_matrix_columns(part, row, k, values);
    const int32_t left = part->inputs - k, count = left < NEUTRON_MATRIX_DECODED ? left : NEUTRON_MATRIX_DECODED;
    size_t decode = (size_t)(k / m->group) * row->decode_pitch;
    NeutronNibbles nibbles = {.from = row->from + (size_t)(k / NEUTRON_MATRIX_STEP) * row->pitch, .pitch = row->pitch, .columns = m->group};
    const size_t of_group = (size_t)(m->group / NEUTRON_MATRIX_STEP) * row->pitch;
    for (int32_t i = 0; i < count; i += m->group, decode += row->decode_pitch, nibbles.from += of_group) {
        neutron_set_scale(&nibbles, row->decode_scales + 2 * decode, row->decode_biases[decode]);
        decode_group(buffer + i, &nibbles);
    }
    *values = buffer;
    return count;
}

#endif
