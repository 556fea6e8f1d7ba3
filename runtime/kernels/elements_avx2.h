/* SPDX-License-Identifier: BSD-3-Clause */
/* Eight elements at a time with AVX2, bit for bit what elements.h computes one by one. */
#ifndef NEUTRON_ELEMENTS_AVX2_H
#define NEUTRON_ELEMENTS_AVX2_H

#include "elements.h"

#ifdef NEUTRON_AVX2
#include <immintrin.h>

#define NEUTRON_AVX2_INLINE NEUTRON_AVX2 static NEUTRON_INLINE

/* Eight stored values as 32-bit numbers. */
NEUTRON_AVX2_INLINE __m256i neutron_widened(const void *stored) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(stored));
}

/* The low bytes of eight numbers that fit int8, to memory. */
NEUTRON_AVX2_INLINE void neutron_store_narrowed(void *stored, __m256i x) {
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64(stored, _mm_packs_epi16(words, words));
}

/* neutron_high_mul */
NEUTRON_AVX2_INLINE __m256i neutron_high_mul_avx2(__m256i x, __m256i multiplier) {
    const __m256i nudge = _mm256_set1_epi64x(INT64_C(1) << 30);
    const __m256i even = _mm256_add_epi64(_mm256_mul_epi32(x, multiplier), nudge);
    const __m256i odd = _mm256_add_epi64(_mm256_mul_epi32(_mm256_srli_epi64(x, 32), multiplier), nudge);
    return _mm256_blend_epi32(_mm256_srli_epi64(even, 31), _mm256_slli_epi64(odd, 1), 0xAA);
}

typedef struct {
    __m256i half, any;
    __m128i amount;
} NeutronRoundingAvx2;

NEUTRON_AVX2_INLINE NeutronRoundingAvx2 neutron_rounding_avx2(NeutronRounding by) {
    return (NeutronRoundingAvx2){_mm256_set1_epi32(by.half), _mm256_set1_epi32(by.any),
                                 _mm_cvtsi32_si128(by.amount)};
}

/* neutron_shift_rounding */
NEUTRON_AVX2_INLINE __m256i neutron_shift_rounding_avx2(__m256i x, const NeutronRoundingAvx2 *by) {
    const __m256i below = _mm256_and_si256(_mm256_srai_epi32(x, 31), by->any);
    return _mm256_sra_epi32(_mm256_add_epi32(_mm256_add_epi32(x, by->half), below), by->amount);
}

/* neutron_bound */
NEUTRON_AVX2_INLINE __m256i neutron_bound_avx2(__m256i x, __m256i low, __m256i high) {
    return _mm256_min_epi32(_mm256_max_epi32(x, low), high);
}

#endif
#endif
