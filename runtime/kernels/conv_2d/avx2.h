/* SPDX-License-Identifier: BSD-3-Clause */
/* What the AVX2 variants of the convolution kernels share: requantization of 8 channels, and loads that read no more than
 * they must. */
#ifndef NEUTRON_CONVOLUTION_AVX2_H
#define NEUTRON_CONVOLUTION_AVX2_H

#include "convolution.h"

#if NEUTRON_X86_VARIANTS

#include <immintrin.h>

#define NEUTRON_AVX2_INLINE NEUTRON_AVX2 static inline __attribute__((always_inline))

/* Runs conv_2d_s8 and conv_2d_1x1_s8, which pack weights alike. False where the call is not for it. */
bool neutron_convolve_avx2(const NeutronKernelCall *call);

/* ---- requantization of 8 lanes of 32 bits ---------------------------------------------------------------------------- */

/* round(round(x * m / 2^31) / 2^e), the first with halves up, the second with halves away from zero, is
 *     (x * m + 2^30 + 2^(30 + e) - (2^31 where x * m + 2^30 < 0 and e > 0)) >> (31 + e),
 * and with a single rounding, halves up, (x * m + 2^(30 + e)) >> (31 + e). AVX2 shifts 64-bit lanes right only as
 * unsigned numbers, so 2^62, which all shifts divide, is added before and 2^(31 - e) subtracted after. */
typedef struct {
    __m256i multiplier, rounding, tie, right;
} NeutronProduct256;

/* Even and odd lanes are multiplied apart from each other. */
typedef struct {
    NeutronProduct256 even, odd;
    __m256i left, lift, bias; /* lift: 2^(31 - e) */
} NeutronRescale256;

NEUTRON_AVX2_INLINE __m256i neutron_words_256(const int32_t *words) {
    return _mm256_loadu_si256((const __m256i *)(const void *)words);
}

/* For the even lanes of 8 words. */
NEUTRON_AVX2_INLINE NeutronProduct256 neutron_product_256(__m256i multipliers, __m256i rights, bool single_rounding) {
    const __m256i low = _mm256_set1_epi64x(UINT32_MAX), one = _mm256_set1_epi64x(1);
    const __m256i right = _mm256_and_si256(rights, low);
    const __m256i half = _mm256_sllv_epi64(one, _mm256_add_epi64(right, _mm256_set1_epi64x(30)));
    const __m256i lifted = _mm256_add_epi64(half, _mm256_set1_epi64x(INT64_C(1) << 62));
    const __m256i twice =
        single_rounding ? _mm256_setzero_si256() : _mm256_cmpgt_epi64(right, _mm256_setzero_si256());
    NeutronProduct256 product;
    product.multiplier = multipliers;
    product.rounding =
        _mm256_add_epi64(lifted, _mm256_and_si256(twice, _mm256_set1_epi64x(INT64_C(1) << 30)));
    product.tie = _mm256_and_si256(twice, _mm256_set1_epi64x(INT64_C(1) << 31));
    product.right = _mm256_add_epi64(right, _mm256_set1_epi64x(31));
    return product;
}

/* `surplus` is taken from each bias. */
NEUTRON_AVX2_INLINE NeutronRescale256 neutron_rescale_256(const NeutronRequantBlock *table, bool single_rounding) {
    const __m256i zero = _mm256_setzero_si256();
    const __m256i multiplier = _mm256_max_epi32(neutron_words_256(table->multiplier), _mm256_set1_epi32(-INT32_MAX));
    const __m256i shift = _mm256_min_epi32(
        _mm256_max_epi32(neutron_words_256(table->shift), _mm256_set1_epi32(-31)), _mm256_set1_epi32(30));
    NeutronRescale256 r;
    r.left = _mm256_max_epi32(shift, zero);
    const __m256i right = _mm256_sub_epi32(r.left, shift);
    r.even = neutron_product_256(multiplier, right, single_rounding);
    r.odd = neutron_product_256(_mm256_srli_epi64(multiplier, 32), _mm256_srli_epi64(right, 32), single_rounding);
    r.lift = _mm256_sllv_epi32(_mm256_set1_epi32(1), _mm256_sub_epi32(_mm256_set1_epi32(31), right));
    r.bias = neutron_words_256(table->bias);
    return r;
}

NEUTRON_AVX2_INLINE bool neutron_shifts_left_256(const NeutronRescale256 *r) {
    return _mm256_testz_si256(r->left, r->left) == 0;
}

NEUTRON_AVX2_INLINE __m256i neutron_multiplied_256(__m256i x, const NeutronProduct256 *r) {
    const __m256i product = _mm256_mul_epi32(x, r->multiplier);
    const __m256i below = _mm256_cmpgt_epi64(_mm256_set1_epi64x(-(INT64_C(1) << 30)), product);
    const __m256i sum = _mm256_sub_epi64(_mm256_add_epi64(product, r->rounding), _mm256_and_si256(below, r->tie));
    return _mm256_srlv_epi64(sum, r->right);
}

/* Bounds of the result before the zero point is added, and the zero point. */
typedef struct {
    __m256i low, high, zero_point;
} NeutronRange256;

NEUTRON_AVX2_INLINE NeutronRange256 neutron_range_256(const NeutronConv2dS8 *p) {
    NeutronRange256 range;
    range.low = _mm256_set1_epi32(p->clamp_min - p->output_zero_point);
    range.high = _mm256_set1_epi32(p->clamp_max - p->output_zero_point);
    range.zero_point = _mm256_set1_epi32(p->output_zero_point);
    return range;
}

/* Sums without their biases to 8 stored bytes, the first `channels` of which are written. */
NEUTRON_AVX2_INLINE void neutron_store_256(__m256i sums, const NeutronRescale256 *r, const NeutronRange256 *range,
                                           uint8_t *out, int32_t channels) {
    const __m256i x = _mm256_sllv_epi32(_mm256_add_epi32(sums, r->bias), r->left);
    const __m256i even = neutron_multiplied_256(x, &r->even);
    const __m256i odd = neutron_multiplied_256(_mm256_srli_epi64(x, 32), &r->odd);
    const __m256i both = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
    __m256i y = _mm256_sub_epi32(both, r->lift);
    y = _mm256_add_epi32(_mm256_min_epi32(_mm256_max_epi32(y, range->low), range->high), range->zero_point);
    y = _mm256_packs_epi32(y, y);
    y = _mm256_packs_epi16(y, y);
    const __m128i bytes = _mm_unpacklo_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
    if (channels >= 8) {
        _mm_storel_epi64((__m128i *)(void *)out, bytes);
    } else {
        const int64_t eight = _mm_cvtsi128_si64(bytes);
        memcpy(out, &eight, (size_t)channels);
    }
}

/* ---- loads ---------------------------------------------------------------------------------------------------------- */

/* 8 bytes, of which the first `count` are read. */
NEUTRON_AVX2_INLINE __m128i neutron_bytes_128(const uint8_t *at, size_t count) {
    if (count >= 8) return _mm_loadl_epi64((const __m128i *)(const void *)at);
    int64_t eight = 0;
    memcpy(&eight, at, count);
    return _mm_cvtsi64_si128(eight);
}

#endif
#endif
