/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrices of 8-bit or 4-bit weights, in parts of their columns, in the order that a job has (src/openneutron/device/neutron_jobs.py).
 *
 * A part is [matrix_rows, its inputs] in blocks of `cores` runs of `block` rows. The runs take turns: 256 bytes of each of int8 weights, 128 of
 * int4 weights. A run of int8 weights has row after row; one of int4 weights has 16 columns of each row, the next 16 of each row, and so on.
 * Behind the int4 weights are an int16 scale and an int8 bias for each group of columns of a row, in each run group by group, then lengths. */
#ifndef NEUTRON_MATRIX_H
#define NEUTRON_MATRIX_H

#include "language.h"

enum {
    NEUTRON_MATRIX_STEP = 16,
    NEUTRON_MATRIX_TURN = 256,
    NEUTRON_MATRIX_TURN_4 = 128,
    NEUTRON_MATRIX_DECODE_TURN = 8192,
    NEUTRON_MATRIX_MOST_INPUTS = 131072, /* sums of so many products are below 2^31 */
    NEUTRON_MATRIX_MOST_GROUP = 128
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

/* The 16 integers that the NPU makes of the 4-bit weights -8 to 7 of a group: (weight + bias) * mantissa * 2^-shift, rounded half up and
 * saturated. Their order is that of the stored nibbles: 0 to 7, then -8 to -1. */
static NEUTRON_INLINE void neutron_decode_table(int8_t *table, uint16_t scale, int8_t bias) {
    /* Products are below 2^18: with a shift of 30 or more they are 0. */
    const int32_t mantissa = scale & 1023, stored = scale >> 10, shift = stored > 30 ? 30 : stored;
    const int32_t half = (1 << shift) >> 1;
    for (int32_t i = 0; i < 16; i++) {
        const int32_t weight = (i ^ 8) - 8;
        table[i] = (int8_t)neutron_bound(((weight + bias) * mantissa + half) >> shift, INT8_MIN, INT8_MAX);
    }
}

/* Columns of a row of a part, from column k on, which is a multiple of 16 or of the group: sets where they are, and returns their number. `buffer` has
 * room for a group's. */
static NEUTRON_INLINE int32_t neutron_matrix_piece(const NeutronMatrixWords *m, const NeutronMatrixPart *part, int32_t row, int32_t k,
                                                   int8_t *buffer, const int8_t **values) {
    const size_t cores = (size_t)part->cores, block = (size_t)part->block, inputs = (size_t)part->inputs;
    const size_t run = (size_t)row / block, in_run = (size_t)row % block;
    const size_t first = run / cores * cores, core = run % cores; /* the first run of the block */
    if (m->bits == 8) {
        const size_t at = in_run * inputs + (size_t)k, in_turn = at % NEUTRON_MATRIX_TURN;
        const uint8_t *runs = part->weights + first * block * inputs;
        if (cores == 1) {
            *values = (const int8_t *)runs + at;
            return part->inputs - k;
        }
        *values = (const int8_t *)runs + (at - in_turn) * cores + core * NEUTRON_MATRIX_TURN + in_turn;
        const int32_t left = part->inputs - k, of_turn = (int32_t)(NEUTRON_MATRIX_TURN - in_turn);
        return left < of_turn ? left : of_turn;
    }
    const size_t group = (size_t)k / (size_t)m->group, groups = inputs / (size_t)m->group;
    const size_t decode = (first + core) * block * groups + group * block + in_run;
    uint16_t scale;
    int8_t table[16];
    memcpy(&scale, part->decode_scales + 2 * decode, sizeof scale);
    neutron_decode_table(table, scale, part->decode_biases[decode]);
    const uint8_t *runs = part->weights + first * block * inputs / 2;
    for (int32_t i = 0; i < m->group; i += NEUTRON_MATRIX_STEP) {
        const size_t at = ((size_t)(k + i) / NEUTRON_MATRIX_STEP * block + in_run) * 8, in_turn = at % NEUTRON_MATRIX_TURN_4;
        const uint8_t *from = runs + (at - in_turn) * cores + core * NEUTRON_MATRIX_TURN_4 + in_turn;
        for (int32_t j = 0; j < 8; j++) {
            buffer[i + 2 * j] = table[from[j] & 15];
            buffer[i + 2 * j + 1] = table[from[j] >> 4];
        }
    }
    *values = buffer;
    return m->group;
}

#endif
