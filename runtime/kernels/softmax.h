/* SPDX-License-Identifier: BSD-3-Clause */
/* What softmax and its logarithm share: fixed-point pieces of LiteRT's reference/softmax.h and gemmlowp's fixedpoint.h. */
#ifndef NEUTRON_SOFTMAX_H
#define NEUTRON_SOFTMAX_H

#include "elements.h"
#include "elements_dsp.h"

/* Bits before the point of the sum of exponentials; the exponentials have none. */
enum { SUM_INTEGER_BITS = 12 };

/* Of x > 0. */
static inline int32_t softmax_leading_zeros(uint32_t x) { return __builtin_clz(x); }

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

#endif
