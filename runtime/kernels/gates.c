/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions of a gate are gemmlowp's fixed point (fixedpoint.h) on int16, rounding step by rounding step, as LiteRT's
 * portable_tensor_utils.cc calls it. */
#include "gates.h"

static NEUTRON_INLINE void sum_rows(uint32_t *accumulators, const NeutronMatrix *matrix, size_t block) {
#ifdef __linux__
    if (matrix->jobs != NULL) {
        neutron_step_sums(matrix->jobs, block * NEUTRON_LANES, accumulators);
        return;
    }
#endif
    const size_t block_bytes = neutron_blocks_of(matrix->inputs) * NEUTRON_LANES * NEUTRON_LANES;
    NeutronSums sums = {0};
    for (int k = 0; k < NEUTRON_LANES; k++) accumulators[k] = (uint32_t)matrix->table[block].bias[k];
    neutron_multiply_pixel(&sums, matrix->weights + block * block_bytes, matrix->vector, matrix->vector_pitch,
                           matrix->inputs);
    neutron_add_sums(accumulators, &sums);
}

void neutron_multiply_rows(int32_t *results, const NeutronMatrix *matrix, size_t block, bool once) {
    const NeutronRequantBlock *table = matrix->table + block;
    uint32_t accumulators[NEUTRON_LANES];
    sum_rows(accumulators, matrix, block);
    for (int k = 0; k < NEUTRON_LANES; k++) {
        const int32_t sum = (int32_t)accumulators[k], multiplier = neutron_sound_multiplier(table->multiplier[k]);
        results[k] = once ? neutron_rounded_once(sum, multiplier, table->shift[k] & 0xFF)
                          : neutron_rounded_twice(sum, multiplier, table->shift[k]);
    }
}

NeutronMatrix neutron_matrix_at(const NeutronKernelCall *call, const uint32_t *words, int32_t inputs) {
    const void *weights = neutron_base_address(call->bases, words[0]) + words[1];
    const void *table = neutron_base_address(call->bases, words[2]) + words[3];
    return (NeutronMatrix){.weights = weights, .table = table, .vector_pitch = 1, .inputs = inputs};
}

void neutron_multiply_gates(uint8_t *gates, int32_t rows, const NeutronMatrix *x, const NeutronMatrix *h) {
    const int32_t far = 1 << 30; /* a sum with an int16 stays inside 32 bits */
    for (size_t block = 0; block < neutron_blocks_of(rows); block++) {
        const int32_t first = (int32_t)block * NEUTRON_LANES, left = rows - first;
        int32_t of_x[NEUTRON_LANES], of_h[NEUTRON_LANES];
        neutron_multiply_rows(of_x, x, block, false);
        neutron_multiply_rows(of_h, h, block, false);
        for (int32_t k = 0; k < NEUTRON_LANES && k < left; k++) {
            const int32_t sum = neutron_bound_16(of_x[k]) + neutron_bound(of_h[k], -far, far);
            neutron_store_16(gates + 2 * (ptrdiff_t)(first + k), neutron_bound_16(sum));
        }
    }
}

/* ---- fixed point ---------------------------------------------------------------------------------------------------- */

/* a * b / 2^15, halves away from 0; the numbers are int16. */
static inline int32_t product(int32_t a, int32_t b) {
    const int32_t exact = a * b;
    const int32_t rounded = (exact + (exact >= 0 ? 1 << 14 : 1 - (1 << 14))) / (1 << 15);
    return rounded > INT16_MAX ? INT16_MAX : rounded;
}

static inline int32_t wrapped(int32_t x) { return (int16_t)(uint16_t)x; }

static inline int32_t shifted_left(int32_t x, int32_t bits) { return neutron_bound_16(x * (1 << bits)); }

enum { ONE = INT16_MAX };

/* exp(x) for x in [-1/4, 0), 15 fractional bits. */
static int32_t exp_below_one_quarter(int32_t a) {
    const int32_t center = 28918 /* exp(-1/8) */, third = 10923;
    const int32_t x = a + (1 << 12), x2 = product(x, x), x3 = product(x2, x), x4 = product(x2, x2);
    const int32_t cubes = wrapped(neutron_rounding_shift_right(x4, 2) + x3);
    const int32_t rest = neutron_rounding_shift_right(wrapped(product(cubes, third) + x2), 1);
    return neutron_bound_16(center + product(center, wrapped(x + rest)));
}

/* exp(a) with 15 fractional bits for a <= 0 with so many integer bits. */
static int32_t exp_on_negative_values(int32_t a, int32_t integer_bits) {
    static const int16_t powers[7] = {25520, 19875, 12055, 4435, 600, 11, 0}; /* exp(-1/4), exp(-1/2) ... exp(-16) */
    const int32_t fraction_bits = 15 - integer_bits, quarter = 1 << (fraction_bits - 2);
    const int32_t within = (a & (quarter - 1)) - quarter;
    const int32_t remainder = within - a;
    int32_t result = exp_below_one_quarter(shifted_left(within, integer_bits));
    if (a == 0) return ONE;
    if (integer_bits > 5 && a < -(32 << fraction_bits)) return 0;
    for (int32_t i = 0; i < integer_bits + 2 && i < 7; i++) {
        if ((remainder & quarter << i) != 0) result = product(result, powers[i]);
    }
    return result;
}

/* 2 / (1 + a) for a in [0, 1], 13 fractional bits, by three steps of Newton's method. */
static int32_t reciprocal(int32_t a) {
    const int32_t from = 23130 /* 48/17 */, slope = -15420 /* -32/17 */;
    const int32_t sum = a + ONE, half = (sum + (sum >= 0 ? 1 : -1)) / 2;
    int32_t x = wrapped(from + product(half, slope));
    for (int i = 0; i < 3; i++) {
        const int32_t error = wrapped((1 << 13) - product(half, x));
        x = wrapped(x + shifted_left(product(x, error), 2));
    }
    return x;
}

int32_t neutron_logistic_16(int32_t x) {
    const int32_t magnitude = wrapped(x > 0 ? x : -x);
    if (x == 0) return 1 << 14;
    const int32_t result = shifted_left(reciprocal(exp_on_negative_values(wrapped(-magnitude), 3)), 1);
    return x > 0 ? result : wrapped(ONE - result);
}

int32_t neutron_tanh_16(int32_t x, int32_t integer_bits) {
    if (x == 0) return 0;
    /* The same word with one integer bit more is twice the number. */
    const int32_t power = exp_on_negative_values(x < 0 ? x : -x, integer_bits + 1);
    const int32_t result = shifted_left(wrapped(reciprocal(power) - (1 << 13)), 2);
    return x < 0 ? wrapped(-result) : result;
}
