/* SPDX-License-Identifier: BSD-3-Clause */
/* Probabilities of int8 from exponentials and their sum, as LiteRT's reference/softmax.h divides. */
#ifndef NEUTRON_SOFTMAX_8_H
#define NEUTRON_SOFTMAX_8_H

#include "softmax.h"

/* The rescaling of a row's exponentials to results: times `scale`, then shifted right. */
typedef struct {
    int32_t scale, exponent;
} SoftmaxDivision;

/* Returns the rescaling by the sum of all exponentials, to probabilities of this many fractional bits. */
static inline SoftmaxDivision softmax_division_by(int64_t sum, int32_t result_bits) {
    /* With 8 bits LiteRT fails at a sum of 512 times the largest exponential; such a sum makes every result 0 here. */
    const uint32_t bounded = sum < 1 ? 1 : (sum > INT32_MAX ? INT32_MAX : (uint32_t)sum);
    const int32_t headroom = softmax_leading_zeros(bounded);
    const SoftmaxDivision by = {softmax_reciprocal_above_one((int32_t)((bounded << headroom) - (UINT32_C(1) << 31))),
                         SUM_INTEGER_BITS - headroom + 31 - result_bits};
    const SoftmaxDivision zero = {0, 0};
    return by.exponent > 31 || by.exponent < 0 ? zero : by;
}

static NEUTRON_INLINE uint8_t softmax_divided(int32_t exponential, SoftmaxDivision by) {
    const int32_t result = neutron_rounding_shift_right(neutron_high_mul(by.scale, exponential), by.exponent);
    return (uint8_t)(neutron_bound(result, 0, 255) + INT8_MIN);
}

/* A quantization of probabilities: words of a parameter block. */
typedef struct {
    int32_t multiplier, shift, zero_point;
} SoftmaxScale;

/* The stored value of a probability at the output's own scale. */
static NEUTRON_INLINE uint8_t softmax_rescaled(int32_t exponential, SoftmaxDivision by, const SoftmaxScale *scale) {
    const int32_t wide = neutron_rounding_shift_right(neutron_high_mul(by.scale, exponential), by.exponent);
    const int32_t result = neutron_requantize(neutron_bound(wide, 0, 65535), scale->multiplier, scale->shift);
    return (uint8_t)neutron_bound(result + scale->zero_point, INT8_MIN, INT8_MAX);
}

#endif
