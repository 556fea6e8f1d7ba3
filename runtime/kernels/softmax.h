/* SPDX-License-Identifier: BSD-3-Clause */
/* Fixed-point pieces of LiteRT's reference/softmax.h and gemmlowp's fixedpoint.h, for softmax and its logarithm. */
#ifndef NEUTRON_SOFTMAX_H
#define NEUTRON_SOFTMAX_H

#include "elements.h"
#include "elements_dsp.h"

/* Input and output have these channels, and the window reads nothing that is not there. */
static inline bool softmax_tensors_are_sound(const NeutronProgramView *program, uint32_t input, uint32_t output,
                                             int32_t channels, const NeutronWindowExtents *window) {
    const NeutronBuffer *in = neutron_checked_buffer(program, input, false);
    const NeutronBuffer *out = neutron_window_buffer(program, output, true, window);
    return in != NULL && out != NULL && channels == in->channels && channels == out->channels &&
           window->batch1 <= in->batches && window->row1 <= in->rows &&
           neutron_buffer_holds(in, window->col0, window->col1, 0, channels);
}

/* A table with an entry of so many bytes for each difference, of which there are 256 at the most. */
static inline bool softmax_table_is_sound(const NeutronProgramView *program, uint32_t base, uint32_t offset,
                                          int32_t count, uint32_t entry_bytes) {
    return count >= 1 && count <= 256 && neutron_range_is_sound(program, base, offset, (uint64_t)count * entry_bytes, 4);
}

/* Bits before the point of the sum of exponentials; the exponentials have none. */
enum { SUM_INTEGER_BITS = 12 };

/* Returns the leading zeros of x > 0. */
static inline int32_t softmax_leading_zeros(uint32_t x) { return __builtin_clz(x); }

/* x * 2^exponent, saturated. */
static inline int32_t softmax_scaled_up(int32_t x, int32_t exponent) {
    const int64_t scaled = (int64_t)x * (INT64_C(1) << exponent);
    return scaled > INT32_MAX ? INT32_MAX : (scaled < INT32_MIN ? INT32_MIN : (int32_t)scaled);
}

/* 1 / (1 + x) for x in [0, 1), both with 31 fractional bits: three Newton-Raphson steps with 2 integer bits (gemmlowp's
 * one_over_one_plus_x_for_x_in_0_1). */
static inline int32_t softmax_reciprocal_above_one(int32_t x) {
    const int32_t one = INT32_C(1) << 29;
    const int32_t half_denominator = (int32_t)(((int64_t)x + INT32_MAX + 1) / 2);
    int32_t y = 1515870810 + neutron_high_mul(half_denominator, -1010580540); /* 48/17 - 32/17 * d */
    for (int32_t i = 0; i < 3; i++) {
        const int32_t error = one - neutron_high_mul(half_denominator, y);
        y += neutron_high_mul(y, error) * 4;
    }
    /* y stands for 2 / (1 + x); half of it has 1 integer bit, and becomes a number with none. */
    return y > (INT32_C(1) << 30) - 1 ? INT32_MAX : y * 2;
}

/* The largest of a row's stored values. */
static inline int32_t softmax_largest(const uint8_t *from, ptrdiff_t pitch, int32_t count) {
    int8_t largest = INT8_MIN;
#if NEUTRON_DSP
    if (pitch == 1 && count >= 4) {
        uint32_t four = neutron_load_word(from);
        /* The last four may have been there before. */
        for (int32_t k = 4; k < count; k += 4) {
            four = neutron_max_bytes(four, neutron_load_word(from + (k < count - 4 ? k : count - 4)));
        }
        four = neutron_max_bytes(four, four >> 16 | four << 16);
        return (int8_t)neutron_max_bytes(four, four >> 8);
    }
#endif
    if (pitch == 1) {
        for (int32_t k = 0; k < count; k++) largest = (int8_t)from[k] > largest ? (int8_t)from[k] : largest;
    } else {
        for (int32_t k = 0; k < count; k++) {
            const int8_t value = (int8_t)from[k * pitch];
            largest = value > largest ? value : largest;
        }
    }
    return largest;
}

/* ---- probabilities of int8 from exponentials and their sum, as LiteRT's reference/softmax.h divides ---------------------------- */

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
