/* SPDX-License-Identifier: BSD-3-Clause */
/* Sixteen elements at a time with AVX-512, bit for bit what elements.h computes one by one. */
#ifndef NEUTRON_ELEMENTS_AVX512_H
#define NEUTRON_ELEMENTS_AVX512_H

#include "elements_avx2.h"

#ifdef NEUTRON_AVX2
#define NEUTRON_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#define NEUTRON_AVX512_INLINE NEUTRON_AVX512 static NEUTRON_INLINE

/* NEUTRON_WITHOUT_AVX512 lets tests reach the AVX2 variants on a machine that has both. */
static inline bool neutron_has_avx512(void) {
#ifdef NEUTRON_WITHOUT_AVX512
    return false;
#else
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#endif
}

/* The first `size` elements of a line, up to 16, as 32-bit numbers; pitch 1, or 0 for one element again and again. */
NEUTRON_AVX512_INLINE __m512i neutron_line_avx512(const uint8_t *line, int32_t done, int32_t pitch, __mmask16 some) {
    const __m128i stored = pitch == 0 ? _mm_set1_epi8((char)*line) : _mm_maskz_loadu_epi8(some, line + done);
    return _mm512_cvtepi8_epi32(stored);
}

/* A mask of as many of 16 elements as there are. */
static inline uint16_t neutron_some_of_16(int32_t left) {
    return left >= 16 ? 0xFFFFu : (uint16_t)((1u << left) - 1u);
}

/* neutron_high_mul */
NEUTRON_AVX512_INLINE __m512i neutron_high_mul_avx512(__m512i x, __m512i multiplier) {
    const __m512i nudge = _mm512_set1_epi64(INT64_C(1) << 30);
    const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(x, multiplier), nudge);
    const __m512i odd = _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(x, 32), multiplier), nudge);
    return _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 31), _mm512_slli_epi64(odd, 1));
}

typedef struct {
    __m512i half, any;
    __m128i amount;
} NeutronRoundingAvx512;

NEUTRON_AVX512_INLINE NeutronRoundingAvx512 neutron_rounding_avx512(NeutronRounding by) {
    return (NeutronRoundingAvx512){_mm512_set1_epi32(by.half), _mm512_set1_epi32(by.any),
                                   _mm_cvtsi32_si128(by.amount)};
}

/* neutron_shift_rounding */
NEUTRON_AVX512_INLINE __m512i neutron_shift_rounding_avx512(__m512i x, const NeutronRoundingAvx512 *by) {
    const __m512i below = _mm512_and_si512(_mm512_srai_epi32(x, 31), by->any);
    return _mm512_sra_epi32(_mm512_add_epi32(_mm512_add_epi32(x, by->half), below), by->amount);
}

/* neutron_bound, then the zero point, to memory. */
NEUTRON_AVX512_INLINE void neutron_store_bounded_avx512(uint8_t *line, __mmask16 some, __m512i x, __m512i low,
                                                        __m512i high, __m512i zero_point) {
    const __m512i bounded = _mm512_min_epi32(_mm512_max_epi32(x, low), high);
    _mm_mask_storeu_epi8(line, some, _mm512_cvtepi32_epi8(_mm512_add_epi32(bounded, zero_point)));
}

#endif
#endif
