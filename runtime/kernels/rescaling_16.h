/* SPDX-License-Identifier: BSD-3-Clause */
/* Requantization of the sums of products of int16 activations. */
#ifndef NEUTRON_RESCALING_16_H
#define NEUTRON_RESCALING_16_H

#include "elements_16.h"

/* LiteRT's MultiplyByQuantizedMultiplier of an int64: round(sum * multiplier / 2^(15 - shift)), halves up, modulo 2^32. check
 * can't read the table, so its words are brought into range here. */
static inline int32_t neutron_rescaled_64(uint64_t sum, int32_t multiplier, int32_t shift) {
    const int32_t right = 15 - neutron_bound(shift, -31, 14);
    const uint64_t product = sum * (uint64_t)(int64_t)multiplier + (UINT64_C(1) << (right - 1));
    return (int32_t)(uint32_t)(uint64_t)((int64_t)product >> right);
}

#endif
