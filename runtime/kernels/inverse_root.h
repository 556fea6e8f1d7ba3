/* SPDX-License-Identifier: BSD-3-Clause */
/* The root that normalizations divide by. */
#ifndef NEUTRON_INVERSE_ROOT_H
#define NEUTRON_INVERSE_ROOT_H

#include "softmax.h"

/* 1 / sqrt(x) of x >= 0 as a multiplier with 31 fractional bits and the shift that goes with it: LiteRT's
 * GetInvSqrtQuantizedMultiplierExp, five steps of Newton's iteration with 3 integer bits. 0 counts as 1. */
static inline int32_t neutron_inverse_root(int32_t x, int32_t *shift) {
    const int32_t half_three = INT32_C(3) << 27, root_of_half = 1518500250;
    *shift = 0;
    if (x <= 1) return INT32_MAX;
    int32_t right = 11;
    for (; x >= INT32_C(1) << 29; right++) x /= 4;
    const int32_t pairs = (softmax_leading_zeros((uint32_t)x) - 1) / 2 - 1;
    right -= pairs;
    const int32_t half_input = neutron_rounding_shift_right((int32_t)((uint32_t)x << (2 * pairs) >> 1), 1);
    int32_t root = INT32_C(1) << 28;
    for (int32_t i = 0; i < 5; i++) {
        const int32_t cubed = softmax_scaled_up(neutron_high_mul(neutron_high_mul(root, root), root), 6);
        root = softmax_scaled_up(neutron_high_mul(half_three, root) - neutron_high_mul(half_input, cubed), 3);
    }
    root = neutron_high_mul(root, root_of_half);
    if (right < 0) return (int32_t)((uint32_t)root << -right);
    *shift = -right;
    return root;
}

#endif
