/* SPDX-License-Identifier: BSD-3-Clause */
/* The checks of the convolution kernels for int16, which are those for int8 and those of two-byte elements; all roundings. */
#include "convolution_16.h"

/* Returns the words of the convolution of bytes that has the same window. */
static NeutronConv2dS8 of_bytes(const NeutronConv2dS16 *p) {
    NeutronConv2dS8 bytes = {0};
    memcpy(&bytes, p, offsetof(NeutronConv2dS8, group_outputs) + sizeof bytes.group_outputs);
    return bytes;
}

bool neutron_convolution_16_is_sound(const NeutronProgramView *program, const NeutronConv2dS16 *p,
                                     const NeutronWindowExtents *window, uint64_t block_bytes) {
    const NeutronConv2dS8 bytes = of_bytes(p);
    if (!neutron_convolution_is_sound(program, &bytes, window, block_bytes)) return false;
    const NeutronBuffer *input = neutron_checked_buffer(program, p->input, false);
    const uint64_t table_bytes = neutron_blocks_of(p->constant_channels) * sizeof(NeutronRequantBlock16);
    return neutron_elements_are_sound(program, input, false, 2) &&
           neutron_window_elements(program, p->output, true, window, 2) != NULL && p->rounding >= 0 &&
           p->rounding <= NEUTRON_MOST_ROUNDING && neutron_bounds_are_sound_16(p->clamp_min, p->clamp_max) &&
           neutron_range_is_sound(program, p->requant_base, p->requant_offset, table_bytes, NEUTRON_ALIGNMENT);
}

/* ---- requantization ------------------------------------------------------------------------------------------------- */

static int32_t significant_bits(uint64_t high, uint64_t low) {
    if (high != 0) return 128 - __builtin_clzll(high);
    return low != 0 ? 64 - __builtin_clzll(low) : 0;
}

/* round() of the double product of an accumulator and a scale: the exact product is rounded to 53 bits, halves to even, and then
 * to an integer, halves away from 0. Exact where the accumulator has 53 bits or fewer. The scale is multiplier * 2^-31 with 22
 * more bits in bits 8 to 29 of the word, times 2 to the power of the word's lowest 8 bits. Saturates. */
static int32_t rescaled_in_double(int64_t sum, int32_t multiplier, int32_t word) {
    enum { DOUBLE_BITS = 53, LOW_BITS = 22 };
    const uint64_t magnitude = sum < 0 ? 0 - (uint64_t)sum : (uint64_t)sum;
    const uint64_t scale = (uint64_t)((uint32_t)multiplier & INT32_MAX) << LOW_BITS | ((uint32_t)word >> 8 & 0x3FFFFF);
    const uint64_t a0 = (uint32_t)magnitude, a1 = magnitude >> 32, b0 = (uint32_t)scale, b1 = scale >> 32;
    const uint64_t lowest = a0 * b0, upper = a1 * b0 + (lowest >> 32), lower = a0 * b1 + (uint32_t)upper;
    const uint64_t high = a1 * b1 + (upper >> 32) + (lower >> 32), low = lower << 32 | (uint32_t)lowest;
    const int32_t bits = significant_bits(high, low), dropped = bits > DOUBLE_BITS ? bits - DOUBLE_BITS : 0;
    uint64_t mantissa = low;
    if (dropped > 0) {
        const uint64_t rest = low & ((UINT64_C(1) << dropped) - 1), half = UINT64_C(1) << (dropped - 1);
        mantissa = high << (64 - dropped) | low >> dropped;
        mantissa += rest > half || (rest == half && (mantissa & 1) != 0);
    }
    const int32_t exponent = neutron_bound(((word & 0xFF) ^ 0x80) - 0x80, -100, 30);
    const int32_t right = DOUBLE_BITS - exponent - dropped;
    uint64_t rounded = 0;
    if (right < 1) {
        rounded = mantissa == 0 ? 0 : INT32_MAX;
    } else if (right <= DOUBLE_BITS + 1) {
        rounded = (mantissa + (UINT64_C(1) << (right - 1))) >> right;
    }
    const int32_t bounded = rounded > INT32_MAX ? INT32_MAX : (int32_t)rounded;
    return sum < 0 ? -bounded : bounded;
}

int32_t neutron_rescaled_16(const NeutronConv2dS16 *p, int32_t multiplier, int32_t shift, uint64_t sum) {
    const int32_t narrow = (int32_t)(uint32_t)sum;
    if (p->rounding == 0) return neutron_rescaled_64(sum, multiplier, shift);
    if (p->rounding == NEUTRON_NARROW_SUMS) {
        return neutron_rounded_twice(narrow, neutron_sound_multiplier(multiplier), shift);
    }
    const bool is_narrow = (p->rounding & NEUTRON_NARROW_SUMS) != 0;
    return rescaled_in_double(is_narrow ? narrow : (int64_t)sum, multiplier, shift);
}
