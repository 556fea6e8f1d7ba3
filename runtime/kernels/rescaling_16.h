/* SPDX-License-Identifier: BSD-3-Clause */
/* Requantization of the sums of products of int16 activations. */
#ifndef NEUTRON_RESCALING_16_H
#define NEUTRON_RESCALING_16_H

#include "elements_16.h"

/* Most multiplications, which take one long multiplication of a 32-bit sum: the scale is below 1/2, not negative, and its shift
 * one that a compiler writes. */
static inline bool neutron_is_short_product(uint64_t sum, int32_t multiplier, int32_t shift) {
    return (int32_t)(uint32_t)sum == (int64_t)sum && shift >= -31 && shift < 0 && (uint32_t)multiplier <= INT16_MAX;
}

/* neutron_rescaled_64() of such a one. The lower word of the product is dropped whole. */
static inline int32_t neutron_short_product(int32_t sum, int32_t multiplier, int32_t shift) {
    const int32_t right = 15 - shift, up = right < 32 ? 32 - right : 0, down = right > 32 ? right - 32 : 0;
    const uint64_t half = down > 0 ? (uint64_t)(UINT32_C(1) << (down - 1)) << 32 : UINT32_C(1) << 31;
    return (int32_t)(((int64_t)sum * (multiplier << up) + (int64_t)half) >> 32) >> down;
}

/* LiteRT's MultiplyByQuantizedMultiplier of an int64: round(sum * multiplier / 2^(15 - shift)), halves up, modulo 2^32. check
 * can't read the table, so its words are brought into range here. */
static inline int32_t neutron_rescaled_64(uint64_t sum, int32_t multiplier, int32_t shift) {
    const int32_t right = 15 - neutron_bound(shift, -31, 14);
    const uint64_t product = sum * (uint64_t)(int64_t)multiplier + (UINT64_C(1) << (right - 1));
    return (int32_t)(uint32_t)(uint64_t)((int64_t)product >> right);
}

#endif
