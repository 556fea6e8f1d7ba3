/* SPDX-License-Identifier: BSD-3-Clause */
/* What the AVX-512 VNNI variants of the convolution kernels share.
 *
 * vpdpbusd multiplies unsigned with signed bytes. Activations are made unsigned by flipping their sign bit, which adds 128
 * to each; the sum then holds 128 * (sum of the weights) too much, and accumulators start at the bias less that.
 *
 * A packed block of weights [8 k][8 inputs] is one vector of 16 lanes: lane 2k takes inputs 0 to 3 of channel k, lane
 * 2k + 1 inputs 4 to 7. An accumulator therefore has two halves of 8 sums, which fold() puts together in the low half of
 * each 64-bit lane, just where a 32 by 32 bit multiplication wants its operand. */
#ifndef NEUTRON_CONVOLUTION_AVX512VNNI_H
#define NEUTRON_CONVOLUTION_AVX512VNNI_H

#include "convolution.h"

#if NEUTRON_X86_VARIANTS

#include <immintrin.h>

#define NEUTRON_AVX512VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define NEUTRON_AVX512VNNI_INLINE NEUTRON_AVX512VNNI static inline __attribute__((always_inline))

/* ---- requantization of 8 lanes of 64 bits ---------------------------------------------------------------------------- */

NEUTRON_AVX512VNNI_INLINE __m256i neutron_words_256(const int32_t *words) {
    return _mm256_loadu_si256((const __m256i *)(const void *)words);
}

/* round(round(x * m / 2^31) / 2^e), the first with halves up, the second with halves away from zero, is
 *     (x * m + 2^30 + 2^(30 + e) - (2^31 where x * m + 2^30 < 0 and e > 0)) >> (31 + e),
 * and with a single rounding, halves up, (x * m + (x * low >> 20) + 2^(30 + e)) >> (31 + e). No sum exceeds 63 bits. With
 * 1 <= e <= 23 there is room for the output's zero point among the summands; and where results below 0 are bounded to 0 or
 * more, what is subtracted where the product is negative makes no difference. */
typedef enum {
    NEUTRON_RESCALE_512_FROM_ZERO, /* e fits; results are bounded to 0 or more */
    NEUTRON_RESCALE_512_RIGHT,     /* e fits */
    NEUTRON_RESCALE_512_ONCE,      /* e fits; one rounding */
    NEUTRON_RESCALE_512_ANY        /* two roundings */
} NeutronRescaleKind512;

typedef struct {
    __m512i multiplier, low, rounding, tie, right, left;
} NeutronRescale512;

/* For 8 channels' words of a requantization table. */
NEUTRON_AVX512VNNI_INLINE NeutronRescale512 neutron_rescale_512(__m256i multipliers, __m256i shifts,
                                                                bool single_rounding) {
    const __m512i zero = _mm512_setzero_si512(), one = _mm512_set1_epi64(1);
    const __m512i multiplier = _mm512_max_epi64(_mm512_cvtepi32_epi64(multipliers), _mm512_set1_epi64(-INT32_MAX));
    __m512i shift = _mm512_cvtepi32_epi64(shifts), low = zero;
    if (single_rounding) {
        low = _mm512_and_si512(_mm512_srli_epi64(shift, 8), _mm512_set1_epi64(0xFFFFF));
        shift = _mm512_srai_epi64(_mm512_slli_epi64(shift, 56), 56);
    }
    shift = _mm512_min_epi64(_mm512_max_epi64(shift, _mm512_set1_epi64(-31)), _mm512_set1_epi64(30));
    /* A multiplier of 0, as of the channels that fill up a block, gives 0 with any shift; this one always fits. */
    const __m512i bits = _mm512_or_si512(multiplier, low);
    shift = _mm512_mask_set1_epi64(shift, _mm512_testn_epi64_mask(bits, bits), -1);
    const __m512i left = _mm512_max_epi64(shift, zero);
    const __m512i right = _mm512_sub_epi64(left, shift);
    const __mmask8 rounds_twice = single_rounding ? 0 : _mm512_cmpgt_epi64_mask(right, zero);
    const __m512i half = _mm512_sllv_epi64(one, _mm512_add_epi64(right, _mm512_set1_epi64(30)));
    NeutronRescale512 r;
    r.multiplier = multiplier;
    r.low = low;
    r.rounding = _mm512_mask_add_epi64(half, rounds_twice, half, _mm512_set1_epi64(INT64_C(1) << 30));
    r.tie = _mm512_maskz_set1_epi64(rounds_twice, INT64_C(1) << 31);
    r.right = _mm512_add_epi64(right, _mm512_set1_epi64(31));
    r.left = left;
    return r;
}

NEUTRON_AVX512VNNI_INLINE bool neutron_right_fits_512(const NeutronRescale512 *r) {
    return _mm512_cmplt_epu64_mask(_mm512_sub_epi64(r->right, _mm512_set1_epi64(32)), _mm512_set1_epi64(23)) == 0xFF;
}

/* The kind of a layer whose channels all have a right shift that fits, or not. */
static inline NeutronRescaleKind512 neutron_rescale_kind_512(const NeutronConv2dS8 *p, bool fits) {
    if (!fits) return NEUTRON_RESCALE_512_ANY;
    if (p->single_rounding != 0) return NEUTRON_RESCALE_512_ONCE;
    return p->clamp_min >= p->output_zero_point ? NEUTRON_RESCALE_512_FROM_ZERO : NEUTRON_RESCALE_512_RIGHT;
}

/* Takes the zero point among the summands, as all kinds but ANY want it. */
NEUTRON_AVX512VNNI_INLINE void neutron_add_zero_point_512(NeutronRescale512 *r, int32_t zero_point) {
    r->rounding = _mm512_add_epi64(r->rounding, _mm512_sllv_epi64(_mm512_set1_epi64(zero_point), r->right));
}

/* x: int32_t in the low half of each lane; so is the result. */
NEUTRON_AVX512VNNI_INLINE __m512i neutron_rescaled_512(__m512i x, const NeutronRescale512 *r,
                                                       const NeutronRescaleKind512 kind) {
    if (kind == NEUTRON_RESCALE_512_ANY) x = _mm512_sllv_epi32(x, r->left);
    const __m512i product = _mm512_mul_epi32(x, r->multiplier);
    __m512i sum = _mm512_add_epi64(product, r->rounding);
    if (kind == NEUTRON_RESCALE_512_ONCE) {
        sum = _mm512_add_epi64(sum, _mm512_srai_epi64(_mm512_mul_epi32(x, r->low), 20));
    } else if (kind != NEUTRON_RESCALE_512_FROM_ZERO) {
        const __mmask8 below = _mm512_cmplt_epi64_mask(product, _mm512_set1_epi64(-(INT64_C(1) << 30)));
        sum = _mm512_mask_sub_epi64(sum, below, sum, r->tie);
    }
    return _mm512_srav_epi64(sum, r->right);
}

/* The output's bounds as bytes, and for results that don't have the zero point yet. */
typedef struct {
    __m128i low_bytes, high_bytes;
    __m512i low, high, zero_point;
} NeutronRange512;

NEUTRON_AVX512VNNI_INLINE NeutronRange512 neutron_range_512(const NeutronConv2dS8 *p) {
    NeutronRange512 range;
    range.low_bytes = _mm_set1_epi8((char)p->clamp_min);
    range.high_bytes = _mm_set1_epi8((char)p->clamp_max);
    range.low = _mm512_set1_epi32(p->clamp_min - p->output_zero_point);
    range.high = _mm512_set1_epi32(p->clamp_max - p->output_zero_point);
    range.zero_point = _mm512_set1_epi32(p->output_zero_point);
    return range;
}

/* 16 rescaled values to bytes. */
NEUTRON_AVX512VNNI_INLINE __m128i neutron_stored_512(__m512i x, const NeutronRange512 *range,
                                                     const NeutronRescaleKind512 kind) {
    if (kind == NEUTRON_RESCALE_512_ANY) {
        x = _mm512_min_epi32(_mm512_max_epi32(x, range->low), range->high);
        x = _mm512_add_epi32(x, range->zero_point);
    }
    return _mm_min_epi8(_mm_max_epi8(_mm512_cvtsepi32_epi8(x), range->low_bytes), range->high_bytes);
}

/* The low halves of a's 8 lanes, then of b's. */
NEUTRON_AVX512VNNI_INLINE __m512i neutron_low_halves_512(__m512i a, __m512i b) {
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    return _mm512_permutex2var_epi32(a, even, b);
}

/* ---- blocks of 8 output by 8 input channels --------------------------------------------------------------------------- */

/* 8 output channels, made ready at the start of a call. */
typedef struct {
    __m512i start; /* of an accumulator */
    NeutronRescale512 rescale;
} NeutronGroup512;

/* Groups made ready at a time: what a call keeps on the stack, about 9 KiB. */
enum { NEUTRON_GROUPS_512 = 24 };

/* Fills `groups`. `blocks`: packed blocks of an output channel, all taps. */
NEUTRON_AVX512VNNI static inline NeutronRescaleKind512 neutron_prepare_groups_512(
    NeutronGroup512 *groups, size_t count, const NeutronConv2dS8 *p, const NeutronRequantBlock *table,
    const int8_t *weights, size_t blocks) {
    const __m512i ones = _mm512_set1_epi8(1);
    bool fits = true;
    for (size_t g = 0; g < count; g++) {
        __m512i sum0 = _mm512_setzero_si512(), sum1 = sum0;
        size_t b = 0;
        for (; b + 1 < blocks; b += 2, weights += 128) {
            sum0 = _mm512_dpbusd_epi32(sum0, ones, _mm512_loadu_si512(weights));
            sum1 = _mm512_dpbusd_epi32(sum1, ones, _mm512_loadu_si512(weights + 64));
        }
        if (b < blocks) {
            sum0 = _mm512_dpbusd_epi32(sum0, ones, _mm512_loadu_si512(weights));
            weights += 64;
        }
        const __m512i surplus = _mm512_slli_epi32(_mm512_add_epi32(sum0, sum1), 7);
        groups[g].start = _mm512_sub_epi32(_mm512_cvtepu32_epi64(neutron_words_256(table[g].bias)), surplus);
        groups[g].rescale = neutron_rescale_512(neutron_words_256(table[g].multiplier),
                                                neutron_words_256(table[g].shift), p->single_rounding != 0);
        fits &= neutron_right_fits_512(&groups[g].rescale);
    }
    const NeutronRescaleKind512 kind = neutron_rescale_kind_512(p, fits);
    for (size_t g = 0; g < count && kind != NEUTRON_RESCALE_512_ANY; g++) {
        neutron_add_zero_point_512(&groups[g].rescale, p->output_zero_point);
    }
    return kind;
}

/* How many groups of 8 channels to take together when `left` remain: 3, but no single one is left over. */
static inline size_t neutron_groups_at_once_512(size_t left) { return left == 4 || left == 2 ? 2 : (left < 3 ? left : 3); }

/* 8 inputs of one pixel, unsigned, in each 64-bit lane; where `rest` is not 0, so many that the pixel has. */
NEUTRON_AVX512VNNI_INLINE __m512i neutron_inputs_512(const uint8_t *pixel, size_t rest) {
    const __m128i bytes = rest != 0 ? _mm_maskz_loadu_epi8((__mmask16)((1u << rest) - 1), pixel)
                                    : _mm_loadl_epi64((const __m128i *)(const void *)pixel);
    return _mm512_xor_si512(_mm512_broadcastq_epi64(bytes), _mm512_set1_epi8(-128));
}

/* Adds the products of block `b` of each pixel's inputs with a block of weights of each group. */
NEUTRON_AVX512VNNI_INLINE void neutron_multiply_block_512(__m512i accumulators[8][3], const uint8_t *const pixel[8],
                                                          const size_t *steps, size_t b, const int8_t *weights,
                                                          size_t group_bytes, size_t rest, const int pixels,
                                                          const int count) {
    __m512i w[3];
    NEUTRON_UNROLL
    for (int g = 0; g < count; g++) w[g] = _mm512_loadu_si512(weights + (size_t)g * group_bytes);
    NEUTRON_UNROLL
    for (int p = 0; p < pixels; p++) {
        const __m512i x = neutron_inputs_512(pixel[p] + b * (steps != NULL ? steps[p] : 8), rest);
        NEUTRON_UNROLL
        for (int g = 0; g < count; g++) accumulators[p][g] = _mm512_dpbusd_epi32(accumulators[p][g], x, w[g]);
    }
}

/* Adds the products of all `inputs` of each pixel. steps: bytes from 8 inputs of a pixel to the next; NULL: 8. */
NEUTRON_AVX512VNNI_INLINE void neutron_multiply_pixels_512(__m512i accumulators[8][3], const uint8_t *const pixel[8],
                                                           const size_t *steps, size_t inputs, const int8_t *weights,
                                                           size_t group_bytes, const int pixels, const int count) {
    const size_t whole = inputs / 8, rest = inputs % 8;
    for (size_t b = 0; b < whole; b++, weights += 64) {
        neutron_multiply_block_512(accumulators, pixel, steps, b, weights, group_bytes, 0, pixels, count);
    }
    if (rest != 0) {
        neutron_multiply_block_512(accumulators, pixel, steps, whole, weights, group_bytes, rest, pixels, count);
    }
}

/* Where a block of pixels and groups writes, and how. */
typedef struct {
    uint8_t *out; /* first pixel, first group */
    ptrdiff_t pixel_pitch;
    int32_t pixels, channels; /* that are written */
} NeutronStore512;

/* The first `count` of 8 bytes. A masked store costs several plain ones on some processors. */
NEUTRON_AVX512VNNI_INLINE void neutron_store_8_128(uint8_t *out, __m128i bytes, int32_t count) {
    if (count >= 8) {
        _mm_storel_epi64((__m128i *)(void *)out, bytes);
    } else {
        _mm_mask_storeu_epi8(out, (__mmask16)((1u << count) - 1), bytes);
    }
}

/* Stores accumulators[pixel][group] of at most 8 pixels and 3 groups. */
NEUTRON_AVX512VNNI_INLINE void neutron_store_kind_512(const __m512i accumulators[8][3], const NeutronGroup512 *groups,
                                                      const NeutronRange512 *range, const NeutronStore512 *to,
                                                      const int pixels, const int count,
                                                      const NeutronRescaleKind512 kind) {
    NEUTRON_UNROLL
    for (int g = 0; g < count; g++) {
        const int32_t left = to->channels - 8 * g;
        uint8_t *out = to->out + 8 * g;
        NEUTRON_UNROLL
        for (int p = 0; p < pixels; p += 2) {
            __m512i z[2];
            NEUTRON_UNROLL
            for (int i = 0; i < 2; i++) {
                const __m512i halves = accumulators[p + i < pixels ? p + i : p][g];
                const __m512i folded = _mm512_add_epi32(halves, _mm512_srli_epi64(halves, 32));
                z[i] = p + i < pixels ? neutron_rescaled_512(folded, &groups[g].rescale, kind) : z[0];
            }
            const __m128i stored = neutron_stored_512(neutron_low_halves_512(z[0], z[1]), range, kind);
            neutron_store_8_128(out + p * to->pixel_pitch, stored, p < to->pixels ? left : 0);
            if (p + 1 < pixels) {
                neutron_store_8_128(out + (p + 1) * to->pixel_pitch, _mm_unpackhi_epi64(stored, stored),
                                    p + 1 < to->pixels ? left : 0);
            }
        }
    }
}

/* The seldom kinds, out of line. */
NEUTRON_AVX512VNNI __attribute__((noinline, unused)) static void neutron_store_seldom_512(
    const __m512i accumulators[8][3], const NeutronGroup512 *groups, const NeutronRange512 *range,
    const NeutronStore512 *to, int count, NeutronRescaleKind512 kind) {
    for (int g = 0; g < count; g++) {
        const int32_t left = to->channels - 8 * g;
        for (int p = 0; p < to->pixels; p++) {
            const __m512i halves = accumulators[p][g];
            const __m512i folded = _mm512_add_epi32(halves, _mm512_srli_epi64(halves, 32));
            const __m512i z = neutron_rescaled_512(folded, &groups[g].rescale, kind);
            const __m128i stored = neutron_stored_512(neutron_low_halves_512(z, z), range, kind);
            neutron_store_8_128(to->out + 8 * g + p * to->pixel_pitch, stored, left);
        }
    }
}

NEUTRON_AVX512VNNI_INLINE void neutron_store_block_512(const __m512i accumulators[8][3], const NeutronGroup512 *groups,
                                                       const NeutronRange512 *range, NeutronRescaleKind512 kind,
                                                       const NeutronStore512 *to, const int pixels, const int count) {
    if (kind == NEUTRON_RESCALE_512_FROM_ZERO) {
        neutron_store_kind_512(accumulators, groups, range, to, pixels, count, NEUTRON_RESCALE_512_FROM_ZERO);
    } else if (kind == NEUTRON_RESCALE_512_RIGHT) {
        neutron_store_kind_512(accumulators, groups, range, to, pixels, count, NEUTRON_RESCALE_512_RIGHT);
    } else {
        __m512i spilled[8][3];
        NEUTRON_UNROLL
        for (int p = 0; p < pixels; p++) {
            NEUTRON_UNROLL
            for (int g = 0; g < count; g++) spilled[p][g] = accumulators[p][g];
        }
        neutron_store_seldom_512((const __m512i(*)[3])spilled, groups, range, to, count, kind);
    }
}

/* ---- pointwise lines ------------------------------------------------------------------------------------------------ */

/* Made ready for a number of groups of output channels. */
typedef struct {
    int32_t inputs;
    NeutronRange512 range;
    size_t group_bytes; /* packed weights of 8 output channels */
    NeutronRescaleKind512 kind;
} NeutronPointwise512;

/* All `channels` of all pixels. */
void neutron_pointwise_tile_512(const NeutronPointwise512 *layer, const NeutronLine *line, const int8_t *weights,
                                const NeutronGroup512 *groups, int32_t channels);

#endif
#endif
