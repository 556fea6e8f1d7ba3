/* SPDX-License-Identifier: BSD-3-Clause */
/* The logistic function and the hyperbolic tangent of int16 as LiteRT has them (reference/integer_ops/logistic.h, tanh.h): one table
 * of the sigmoid's positive half, 256 entries with 16 fractional bits, 1/24 apart; tanh(x) = 2 * sigmoid(2 * x) - 1.
 *
 * x has 3 * 2^12 for 1. Results have 15 fractional bits. */
#ifndef NEUTRON_LOGISTIC_16_H
#define NEUTRON_LOGISTIC_16_H

#include "kernel.h"

enum { NEUTRON_SIGMOID_ENTRIES = 256, NEUTRON_SIGMOID_BYTES = 512 };

/* The sigmoid of a magnitude, `bits` of which are between two entries; as many more fractional bits. */
static NEUTRON_INLINE int32_t neutron_sigmoid_between(int32_t x, const uint16_t *table, int32_t bits, int32_t most) {
    const uint32_t last = NEUTRON_SIGMOID_ENTRIES - 1, magnitude = x < 0 ? 0u - (uint32_t)x : (uint32_t)x;
    const uint32_t index = magnitude >> bits, kept = index < last - 1 ? index : last - 1;
    const uint32_t between = magnitude & ((UINT32_C(1) << bits) - 1u);
    const uint32_t step = (uint32_t)table[kept + 1] - table[kept];
    return index < last ? (int32_t)(((uint32_t)table[kept] << bits) + between * step) : most;
}

static NEUTRON_INLINE int16_t neutron_table_logistic_16(int32_t x, const uint16_t *table) {
    const int32_t value = neutron_sigmoid_between(x, table, 9, 0x7FFF << 10);
    return (int16_t)((x >= 0 ? value + (1 << 9) : (1 << 25) - value + (1 << 9) - 1) >> 10);
}

static NEUTRON_INLINE int16_t neutron_table_tanh_16(int32_t x, const uint16_t *table) {
    const int32_t value = neutron_sigmoid_between(x, table, 8, 0xFFFF << 8) - (1 << 23);
    return (int16_t)(((x >= 0 ? value : -value - 1) + (1 << 7)) >> 8);
}

#endif
