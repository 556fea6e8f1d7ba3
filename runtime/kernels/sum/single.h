/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's optimized QuantizedMeanOrSum of a sum: float32 arithmetic, computed with integers, so that every compiler and every core,
 * with or without an FPU, gives the same bits. */
#ifndef NEUTRON_SINGLE_H
#define NEUTRON_SINGLE_H

#include "kernel.h"

/* mantissa * 2^exponent; the mantissa has 24 bits, or is 2^24, or 0. */
typedef struct {
    int64_t mantissa;
    int32_t exponent;
} NeutronSingle;

enum { NEUTRON_SINGLE_BITS = 24, NEUTRON_SINGLE_BIAS = 150, NEUTRON_SINGLE_SPECIAL = 255 };

/* The float32 nearest to a number, halves to even; without the limits of a float32's exponent. Not inlined: each result has four calls. */
static __attribute__((noinline)) NeutronSingle neutron_single(int64_t number, int32_t exponent) {
    if (number == 0) return (NeutronSingle){0, 0};
    uint64_t magnitude = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    const int32_t dropped = 64 - __builtin_clzll(magnitude) - NEUTRON_SINGLE_BITS;
    if (dropped > 0) {
        const uint64_t rest = magnitude & ((UINT64_C(1) << dropped) - 1), half = UINT64_C(1) << (dropped - 1);
        magnitude >>= dropped;
        magnitude += rest > half || (rest == half && (magnitude & 1) != 0);
    } else {
        magnitude <<= -dropped;
    }
    return (NeutronSingle){number < 0 ? -(int64_t)magnitude : (int64_t)magnitude, exponent + dropped};
}

static inline int32_t neutron_exponent_word(int32_t bits) { return (int32_t)((uint32_t)bits >> 23 & 0xFF); }

/* The number whose float32 has these bits. */
static inline NeutronSingle neutron_single_of(int32_t bits) {
    const int32_t exponent = neutron_exponent_word(bits);
    const int64_t mantissa = (bits & 0x7FFFFF) | (exponent > 0 ? 1 << 23 : 0);
    return neutron_single(bits < 0 ? -mantissa : mantissa, (exponent > 0 ? exponent : 1) - NEUTRON_SINGLE_BIAS);
}

static inline NeutronSingle neutron_single_product(NeutronSingle a, NeutronSingle b) {
    return neutron_single(a.mantissa * b.mantissa, a.exponent + b.exponent);
}

static inline NeutronSingle neutron_single_sum(NeutronSingle a, NeutronSingle b) {
    /* Beyond this difference of exponents the smaller number is below a quarter of the larger one's last bit. */
    enum { MOST_DISTANCE = 38 };
    if (a.mantissa == 0) return b;
    if (b.mantissa == 0) return a;
    const NeutronSingle large = a.exponent > b.exponent ? a : b, small = a.exponent > b.exponent ? b : a;
    const int32_t distance = large.exponent - small.exponent;
    if (distance > MOST_DISTANCE) return large;
    return neutron_single(large.mantissa * (INT64_C(1) << distance) + small.mantissa, small.exponent);
}

/* The nearest integer, halves away from 0, within [low, high], which 16 bits hold. */
static inline int32_t neutron_rounded_single(NeutronSingle value, int32_t low, int32_t high) {
    const bool is_negative = value.mantissa < 0;
    const int64_t magnitude = is_negative ? -value.mantissa : value.mantissa;
    int64_t rounded = 0;
    if (magnitude != 0 && value.exponent >= 0) {
        rounded = INT32_MAX;
    } else if (value.exponent >= -(NEUTRON_SINGLE_BITS + 1)) {
        rounded = (magnitude + ((INT64_C(1) << -value.exponent) >> 1)) >> -value.exponent;
    }
    return neutron_bound((int32_t)(is_negative ? -rounded : rounded), low, high);
}

/* A sum of stored values as a stored value less its zero point. */
static inline int32_t neutron_rescaled_sum(int32_t sum, NeutronSingle scale, NeutronSingle bias, int32_t low,
                                           int32_t high) {
    const NeutronSingle product = neutron_single_product(neutron_single(sum, 0), scale);
    return neutron_rounded_single(neutron_single_sum(product, bias), low, high);
}

/* Two finite numbers, the first above or at 0. */
static inline bool neutron_singles_are_sound(int32_t scale, int32_t bias) {
    return scale >= 0 && neutron_exponent_word(scale) != NEUTRON_SINGLE_SPECIAL &&
           neutron_exponent_word(bias) != NEUTRON_SINGLE_SPECIAL;
}

#endif
