/* SPDX-License-Identifier: BSD-3-Clause */
/* vector.h for AVX2. */
#ifndef NEUTRON_VECTOR_AVX2_H
#define NEUTRON_VECTOR_AVX2_H

#include "x86.h"

enum { NEUTRON_WORDS = 8, NEUTRON_PARTS = 1, NEUTRON_BYTES = 32, NEUTRON_FEW_BYTES = 8, NEUTRON_MULTIPLIES_HIGH = 0 };

typedef int32_t NeutronWords __attribute__((vector_size(32)));
typedef int8_t NeutronBytes __attribute__((vector_size(32)));

NEUTRON_VECTOR_INLINE NeutronWords neutron_words(int32_t x) { return (NeutronWords)_mm256_set1_epi32(x); }

NEUTRON_VECTOR_INLINE void neutron_load_words_8(NeutronWords *x, const void *from, int32_t count) {
    const __m128i bytes = count >= 8 ? _mm_loadl_epi64(from) : _mm_cvtsi64_si128((int64_t)neutron_load_few(from, count));
    *x = (NeutronWords)_mm256_cvtepi8_epi32(bytes);
}

NEUTRON_VECTOR_INLINE void neutron_load_words_16(NeutronWords *x, const void *from, int32_t count) {
    __m128i halves;
    if (count >= 8) {
        halves = _mm_loadu_si128(from);
    } else {
        const uint8_t *at = from;
        const uint64_t low = neutron_load_eight(at, 2 * count), high = count > 4 ? neutron_load_few(at + 8, 2 * count - 8) : 0;
        halves = _mm_set_epi64x((int64_t)high, (int64_t)low);
    }
    *x = (NeutronWords)_mm256_cvtepi16_epi32(halves);
}

NEUTRON_VECTOR_INLINE void neutron_store_words_8(void *to, const NeutronWords *x, int32_t count) {
    const __m256i words = (__m256i)*x;
    const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    const __m128i bytes = _mm_packs_epi16(halves, halves);
    if (count >= 8) {
        _mm_storel_epi64(to, bytes);
    } else {
        neutron_store_few(to, (uint64_t)_mm_cvtsi128_si64(bytes), count);
    }
}

NEUTRON_VECTOR_INLINE void neutron_store_words_16(void *to, const NeutronWords *x, int32_t count) {
    const __m256i words = (__m256i)*x;
    const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    if (count >= 8) {
        _mm_storeu_si128(to, halves);
    } else {
        uint8_t *at = to;
        neutron_store_eight(at, (uint64_t)_mm_cvtsi128_si64(halves), 2 * count);
        if (count > 4) neutron_store_few(at + 8, (uint64_t)_mm_extract_epi64(halves, 1), 2 * count - 8);
    }
}

NEUTRON_VECTOR_INLINE NeutronWords neutron_bound_words(NeutronWords x, NeutronWords low, NeutronWords high) {
    return (NeutronWords)_mm256_min_epi32(_mm256_max_epi32((__m256i)x, (__m256i)low), (__m256i)high);
}

NEUTRON_VECTOR_INLINE NeutronWords neutron_magnitude_words(NeutronWords x) {
    return (NeutronWords)_mm256_abs_epi32((__m256i)x);
}

NEUTRON_VECTOR_INLINE NeutronWords neutron_shift_left_words(NeutronWords x, int32_t amount) {
    return (NeutronWords)_mm256_sll_epi32((__m256i)x, _mm_cvtsi32_si128(amount));
}

NEUTRON_VECTOR_INLINE NeutronWords neutron_high_mul_words(NeutronWords a, NeutronWords b) {
    const __m256i x = (__m256i)a, y = (__m256i)b, nudge = _mm256_set1_epi64x(INT64_C(1) << 30);
    const __m256i even = _mm256_add_epi64(_mm256_mul_epi32(x, y), nudge);
    const __m256i odd = _mm256_add_epi64(_mm256_mul_epi32(_mm256_srli_epi64(x, 32), _mm256_srli_epi64(y, 32)), nudge);
    return (NeutronWords)_mm256_blend_epi32(_mm256_srli_epi64(even, 31), _mm256_slli_epi64(odd, 1), 0xAA);
}

typedef struct {
    __m256i half, any;
    __m128i amount;
} NeutronRoundingWords;

NEUTRON_VECTOR_INLINE NeutronRoundingWords neutron_rounding_words(NeutronRounding by) {
    return (NeutronRoundingWords){_mm256_set1_epi32(by.half), _mm256_set1_epi32(by.any), _mm_cvtsi32_si128(by.amount)};
}

NEUTRON_VECTOR_INLINE NeutronWords neutron_shift_rounding_words(NeutronWords x, const NeutronRoundingWords *by) {
    const __m256i below = _mm256_and_si256(_mm256_srai_epi32((__m256i)x, 31), by->any);
    return (NeutronWords)_mm256_sra_epi32(_mm256_add_epi32(_mm256_add_epi32((__m256i)x, by->half), below), by->amount);
}

NEUTRON_VECTOR_INLINE NeutronBytes neutron_bytes(int32_t x) { return (NeutronBytes)_mm256_set1_epi8((char)x); }

NEUTRON_VECTOR_INLINE NeutronBytes neutron_load_bytes(const void *from, int32_t count) {
    if (count >= 32) return (NeutronBytes)_mm256_loadu_si256(from);
    const uint8_t *at = from;
    if (count <= 8) return (NeutronBytes)_mm256_set_epi64x(0, 0, 0, (int64_t)neutron_load_eight(at, count));
    uint64_t eight[4] = {0};
    for (int32_t i = 0; 8 * i < count; i++) eight[i] = neutron_load_eight(at + 8 * i, count - 8 * i);
    return (NeutronBytes)_mm256_loadu_si256((const void *)eight);
}

NEUTRON_VECTOR_INLINE void neutron_store_bytes(void *to, NeutronBytes x, int32_t count) {
    if (count >= 32) {
        _mm256_storeu_si256(to, (__m256i)x);
        return;
    }
    uint8_t *at = to;
    if (count <= 8) {
        neutron_store_eight(at, (uint64_t)_mm_cvtsi128_si64(_mm256_castsi256_si128((__m256i)x)), count);
        return;
    }
    uint64_t eight[4];
    _mm256_storeu_si256((void *)eight, (__m256i)x);
    for (int32_t i = 0; 8 * i < count; i++) neutron_store_eight(at + 8 * i, eight[i], count - 8 * i);
}

NEUTRON_VECTOR_INLINE NeutronBytes neutron_larger_bytes(NeutronBytes a, NeutronBytes b) {
    return (NeutronBytes)_mm256_max_epi8((__m256i)a, (__m256i)b);
}

NEUTRON_VECTOR_INLINE NeutronBytes neutron_smaller_bytes(NeutronBytes a, NeutronBytes b) {
    return (NeutronBytes)_mm256_min_epi8((__m256i)a, (__m256i)b);
}

/* Sixteen entries of the table are one shuffle. Each shuffle gives the exclusive or of two neighbouring sixteenths, so that
 * all that an index passes on its way down cancel out but the last. A shuffle gives 0 for an index below 0: that is where
 * the ones after the last come to rest. */
typedef struct {
    __m256i steps[16];
} NeutronTable;

NEUTRON_VECTOR_INLINE void neutron_prepare_table(NeutronTable *table, const uint8_t *entries) {
    __m128i before = _mm_setzero_si128();
    for (int i = 0; i < 16; i++) {
        /* In order of the unsigned byte: what the upper half of the table holds for 0 to 127 comes first. */
        const __m128i here = _mm_loadu_si128((const void *)(entries + ((i * 16) ^ 0x80)));
        /* The second half of the indices starts anew, from 128 taken as 0. */
        table->steps[i] = _mm256_broadcastsi128_si256(i == 8 ? here : _mm_xor_si128(here, before));
        before = here;
    }
}

NEUTRON_VECTOR_INLINE NeutronBytes neutron_look_up_bytes(const NeutronTable *table, NeutronBytes x) {
    const __m256i sixteen = _mm256_set1_epi8(16), *steps = table->steps;
    __m256i low = (__m256i)x, high = _mm256_xor_si256(low, _mm256_set1_epi8(-128));
    __m256i result = _mm256_shuffle_epi8(steps[0], low), upper = _mm256_shuffle_epi8(steps[8], high);
    for (int i = 1; i < 8; i++) {
        /* Saturating, so that what is below 0 stays there. */
        low = _mm256_subs_epi8(low, sixteen);
        high = _mm256_subs_epi8(high, sixteen);
        result = _mm256_xor_si256(result, _mm256_shuffle_epi8(steps[i], low));
        upper = _mm256_xor_si256(upper, _mm256_shuffle_epi8(steps[8 + i], high));
    }
    return (NeutronBytes)_mm256_or_si256(result, upper);
}

#endif
