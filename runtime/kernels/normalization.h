/* SPDX-License-Identifier: BSD-3-Clause */
/* Normalization by statistics of the input itself, in integers: docs/quantization.md states every step.
 *
 * Of n stored values p less their zero point, d = n * p - sum(p) is n times the distance from the mean in steps, and
 * n * sum(p * p) - sum(p)^2 is n^2 times the variance. Both are exact. */
#ifndef NEUTRON_NORMALIZATION_H
#define NEUTRON_NORMALIZATION_H

#include "elements_16.h"

/* The most elements that share statistics, and the fractional bits of a normalized value and of the scaled variance. */
enum { MOST_NORMALIZED = 32768, NORMAL_BITS = 20, VARIANCE_BITS_S8 = 8, VARIANCE_BITS_S16 = 0 };

/* The factor and the words of the offset of a channel. */
typedef struct {
    int32_t factor;
    uint32_t low, high;
} NeutronNormCoefficient;

/* The words that the parameter blocks of these kernels share. */
typedef struct {
    int32_t zero_point, shift, element_bytes;
    uint64_t epsilon;
    const NeutronNormCoefficient *coefficients;
} NeutronNormalization;

/* The sums of n stored values less their zero point. */
typedef struct {
    int64_t sum, squares;
} NeutronNormSums;

/* The normalized value of p is (n * p - centre) * root / 2^right, with NORMAL_BITS fractional bits. */
typedef struct {
    int64_t count, centre, root;
    int32_t right;
} NeutronNormScale;

static inline bool neutron_normalization_is_sound(const NeutronProgramView *program, uint32_t base, uint32_t offset,
                                                  int32_t channels, int32_t zero_point, uint32_t epsilon_high, int32_t shift) {
    return neutron_is_stored(zero_point) && epsilon_high < UINT32_C(1) << 30 && shift >= 0 && shift <= 62 &&
           neutron_range_is_sound(program, base, offset, (uint64_t)channels * sizeof(NeutronNormCoefficient), 4);
}

/* The words of a call's parameter block `p`. */
#define NEUTRON_NORMALIZATION(call, p, element_bytes)                                                           \
    {(p)->input_zero_point, (p)->shift, element_bytes, (uint64_t)(p)->epsilon_high << 32 | (p)->epsilon_low,    \
     (const NeutronNormCoefficient *)(const void *)(neutron_base_address((call)->bases, (p)->coefficients_base) + \
                                                    (p)->coefficients_offset)}

/* The words of the block `p` for so many channels are sound. */
#define NEUTRON_NORMALIZATION_IS_SOUND(program, p, channels)                                             \
    neutron_normalization_is_sound(program, (p)->coefficients_base, (p)->coefficients_offset, channels, \
                                   (p)->input_zero_point, (p)->epsilon_high, (p)->shift)

static NEUTRON_INLINE int32_t neutron_norm_load(const uint8_t *from, const int32_t element_bytes) {
    return element_bytes == 2 ? neutron_load_16(from) : (int8_t)*from;
}

/* Adds a line of `count` elements. */
static NEUTRON_INLINE void neutron_norm_add(NeutronNormSums *sums, const uint8_t *from, ptrdiff_t pitch, int32_t count,
                                            int32_t zero_point, const int32_t element_bytes) {
    int64_t sum = 0, squares = 0;
    for (int32_t k = 0; k < count; k++) {
        const int32_t value = neutron_norm_load(from + k * pitch, element_bytes) - zero_point;
        sum += value;
        squares += value * value;
    }
    sums->sum += sum;
    sums->squares += squares;
}

/* Adds `count` channels from `channel` on of all columns of the rows [row0, row1). */
static NEUTRON_INLINE void neutron_norm_add_rows(NeutronNormSums *sums, const NeutronKernelCall *call, const NeutronBuffer *in,
                                                 int32_t n, int32_t row0, int32_t row1, int32_t channel, int32_t count,
                                                 int32_t zero_point, const int32_t element_bytes) {
    for (int32_t r = row0; r < row1; r++) {
        const uint8_t *from = neutron_element_address(call->bases, in, n, r, 0, channel);
        for (int32_t c = 0; c < in->cols; c++, from += in->col_pitch) {
            neutron_norm_add(sums, from, in->channel_pitch, count, zero_point, element_bytes);
        }
    }
}

/* 1 / sqrt(x) of a mantissa x in [1/4, 1) with 32 fractional bits, as a number with 30: Newton's iteration
 * y * (3 - x * y * y) / 2, four times, from 2.125 - 1.125 * x. Each product is rounded down. */
static inline uint64_t neutron_norm_root(uint64_t x) {
    uint64_t y = UINT64_C(0x88000000) - (x >> 2) - (x >> 5);
    for (int32_t i = 0; i < 4; i++) {
        const uint64_t square = y * y >> 30, product = x * square >> 32;
        y = y * ((UINT64_C(3) << 30) - product) >> 31;
    }
    return y;
}

/* The centre and the root for n elements with these sums. */
static NEUTRON_INLINE NeutronNormScale neutron_norm_scale(NeutronNormSums sums, int32_t count, bool centred, uint64_t epsilon,
                                                          const int32_t element_bytes) {
    const int32_t bits = element_bytes == 2 ? VARIANCE_BITS_S16 : VARIANCE_BITS_S8;
    const int64_t centre = centred ? sums.sum : 0;
    const uint64_t variance = (((uint64_t)(count * sums.squares - centre * centre)) << bits) + epsilon;
    /* Where all elements are equal and epsilon is 0, every distance is 0. */
    const uint64_t bounded = variance == 0 ? 1 : variance;
    const int32_t length = 64 - __builtin_clzll(bounded);
    const int32_t odd = length & 1 ? 1 : 0, pairs = (length + odd - 32) / 2;
    const uint64_t mantissa = pairs >= 0 ? bounded >> (2 * pairs) : bounded << (-2 * pairs);
    return (NeutronNormScale){count, centre, (int64_t)neutron_norm_root(mantissa), 46 - NORMAL_BITS - bits / 2 + pairs};
}

/* Writes a line of elements from channel `first` on: normalized, times each channel's factor, plus its offset, rounded once. */
static NEUTRON_INLINE void neutron_norm_line(uint8_t *to, ptrdiff_t to_pitch, const uint8_t *from, ptrdiff_t from_pitch,
                                             int32_t first, int32_t count, const NeutronNormalization *by,
                                             const NeutronNormScale *scale, const int32_t element_bytes) {
    const int64_t half = INT64_C(1) << (scale->right - 1);
    const int32_t least = element_bytes == 2 ? INT16_MIN : INT8_MIN, most = element_bytes == 2 ? INT16_MAX : INT8_MAX;
    for (int32_t k = 0; k < count; k++) {
        const NeutronNormCoefficient *own = &by->coefficients[first + k];
        const int32_t value = neutron_norm_load(from + k * from_pitch, element_bytes) - by->zero_point;
        const int64_t distance = scale->count * value - scale->centre;
        const int32_t normal = (int32_t)((distance * scale->root + half) >> scale->right);
        const uint64_t offset = (uint64_t)own->high << 32 | own->low;
        const int64_t result = (int64_t)((uint64_t)((int64_t)normal * own->factor) + offset) >> by->shift;
        const int32_t stored = result < least ? least : (result > most ? most : (int32_t)result);
        if (element_bytes == 2) {
            neutron_store_16(to + k * to_pitch, (int16_t)stored);
        } else {
            to[k * to_pitch] = (uint8_t)stored;
        }
    }
}

#endif
