/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows of two operands with AVX2 and AVX-512, bit for bit what two_operands.h computes one by one. */
#ifndef NEUTRON_TWO_OPERANDS_X86_H
#define NEUTRON_TWO_OPERANDS_X86_H

#include "elements_avx2.h"
#include "two_operands.h"

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

/* Numbers to compute with as with one. */
typedef int32_t NeutronEight __attribute__((vector_size(32)));
typedef int32_t NeutronSixteen __attribute__((vector_size(64)));

/* DEFINE(type, suffix, attributes) once for one number, and once for each kind of vector. */
#define NEUTRON_FOR_EACH_WIDTH(DEFINE)                    \
    DEFINE(int32_t, _1, static NEUTRON_INLINE)            \
    DEFINE(NeutronEight, _8, NEUTRON_AVX2_INLINE)         \
    DEFINE(NeutronSixteen, _16, NEUTRON_AVX512_INLINE)

/* Of two operands' stored values, the number that becomes the result. */
typedef NeutronEight (*NeutronCombineEight)(const void *numbers, NeutronEight a, NeutronEight b);
typedef NeutronSixteen (*NeutronCombineSixteen)(const void *numbers, NeutronSixteen a, NeutronSixteen b);

NEUTRON_AVX2_INLINE void neutron_row_avx2(const void *numbers, const NeutronResult *by, const NeutronTwoOperandRow *row,
                                          NeutronCombineEight combine) {
    const NeutronRoundingAvx2 rounding = neutron_rounding_avx2(by->rounding);
    const __m128i left = _mm_cvtsi32_si128(by->left);
    const __m256i multiplier = _mm256_set1_epi32(by->multiplier), zero_point = _mm256_set1_epi32(by->zero_point);
    const __m256i low = _mm256_set1_epi32(by->low), high = _mm256_set1_epi32(by->high);
    for (int32_t c = 0; c < row->cols; c++) {
        int8_t a[8] = {0}, b[8] = {0}, out[8];
        for (int32_t done = 0; done < row->length; done += 8) {
            const int32_t size = row->length - done < 8 ? row->length - done : 8;
            if (size == 8) {
                neutron_load_operands(row, c, done, a, b, 8);
            } else {
                neutron_load_operands(row, c, done, a, b, size);
            }
            const __m256i x = (__m256i)combine(numbers, (NeutronEight)neutron_widened(a), (NeutronEight)neutron_widened(b));
            const __m256i product = neutron_high_mul_avx2(_mm256_sll_epi32(x, left), multiplier);
            const __m256i rescaled = neutron_shift_rounding_avx2(product, &rounding);
            neutron_store_narrowed(out, _mm256_add_epi32(neutron_bound_avx2(rescaled, low, high), zero_point));
            if (size == 8) {
                neutron_store_result(row, c, done, out, 8);
            } else {
                neutron_store_result(row, c, done, out, size);
            }
        }
    }
}

/* The first elements of a line, up to 16; pitch 1, or 0 for one element again and again. */
NEUTRON_AVX512_INLINE NeutronSixteen neutron_line_avx512(const uint8_t *line, int32_t done, int32_t pitch,
                                                         __mmask16 some) {
    const __m128i stored = pitch == 0 ? _mm_set1_epi8((char)*line) : _mm_maskz_loadu_epi8(some, line + done);
    return (NeutronSixteen)_mm512_cvtepi8_epi32(stored);
}

/* neutron_high_mul */
NEUTRON_AVX512_INLINE __m512i neutron_high_mul_avx512(__m512i x, __m512i multiplier) {
    const __m512i nudge = _mm512_set1_epi64(INT64_C(1) << 30);
    const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(x, multiplier), nudge);
    const __m512i odd = _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(x, 32), multiplier), nudge);
    return _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 31), _mm512_slli_epi64(odd, 1));
}

/* Of pitches that neutron_line_avx512 takes. */
NEUTRON_AVX512_INLINE void neutron_row_avx512(const void *numbers, const NeutronResult *by,
                                              const NeutronTwoOperandRow *row, NeutronCombineSixteen combine) {
    const __m512i half = _mm512_set1_epi32(by->rounding.half), any = _mm512_set1_epi32(by->rounding.any);
    const __m128i left = _mm_cvtsi32_si128(by->left), amount = _mm_cvtsi32_si128(by->rounding.amount);
    const __m512i multiplier = _mm512_set1_epi32(by->multiplier), zero_point = _mm512_set1_epi32(by->zero_point);
    const __m512i low = _mm512_set1_epi32(by->low), high = _mm512_set1_epi32(by->high);
    for (int32_t c = 0; c < row->cols; c++) {
        const uint8_t *a = row->a + (ptrdiff_t)c * row->a_col_pitch, *b = row->b + (ptrdiff_t)c * row->b_col_pitch;
        uint8_t *out = row->out + (ptrdiff_t)c * row->out_col_pitch;
        for (int32_t done = 0; done < row->length; done += 16) {
            const int32_t rest = row->length - done;
            const __mmask16 some = (__mmask16)(rest >= 16 ? 0xFFFFu : (1u << rest) - 1u);
            const __m512i x = (__m512i)combine(numbers, neutron_line_avx512(a, done, row->a_pitch, some),
                                               neutron_line_avx512(b, done, row->b_pitch, some));
            const __m512i product = neutron_high_mul_avx512(_mm512_sll_epi32(x, left), multiplier);
            const __m512i below = _mm512_and_si512(_mm512_srai_epi32(product, 31), any);
            const __m512i nudged = _mm512_add_epi32(_mm512_add_epi32(product, half), below);
            const __m512i bounded = _mm512_min_epi32(_mm512_max_epi32(_mm512_sra_epi32(nudged, amount), low), high);
            _mm_mask_storeu_epi8(out + done, some, _mm512_cvtepi32_epi8(_mm512_add_epi32(bounded, zero_point)));
        }
    }
}

/* name_row_avx2() and name_row_avx512() for combine_8() and combine_16(), whose Numbers have a NeutronResult. Stores to the
 * output can't change the copy of the numbers, so that it stays in registers. */
#define NEUTRON_ROWS_X86(name, combine)                                                                  \
    NEUTRON_AVX2 static void name##_row_avx2(const void *numbers, const NeutronTwoOperandRow *row) {     \
        const Numbers copy = *(const Numbers *)numbers;                                                  \
        neutron_row_avx2(&copy, &copy.result, row, combine##_8);                                         \
    }                                                                                                    \
    NEUTRON_AVX512 static void name##_row_avx512(const void *numbers, const NeutronTwoOperandRow *row) { \
        if (row->a_pitch > 1 || row->b_pitch > 1 || row->out_pitch != 1) {                               \
            name##_row_avx2(numbers, row);                                                               \
        } else {                                                                                         \
            neutron_row_avx512(numbers, &((const Numbers *)numbers)->result, row, combine##_16);         \
        }                                                                                                \
    }
#define NEUTRON_FASTEST_ROW(name) (neutron_has_avx512() ? name##_row_avx512 : NEUTRON_FASTEST(name##_row))

#else
#define NEUTRON_FOR_EACH_WIDTH(DEFINE) DEFINE(int32_t, _1, static NEUTRON_INLINE)
#define NEUTRON_ROWS_X86(name, combine)
#define NEUTRON_FASTEST_ROW(name) name##_row
#endif

#endif
