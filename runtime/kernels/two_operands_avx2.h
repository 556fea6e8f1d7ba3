/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows of two operands with AVX2, bit for bit what two_operands.h computes one by one. */
#ifndef NEUTRON_TWO_OPERANDS_AVX2_H
#define NEUTRON_TWO_OPERANDS_AVX2_H

#include "elements_avx2.h"
#include "two_operands.h"

#ifdef NEUTRON_AVX2
/* Eight numbers, with the operators of one. */
typedef int32_t NeutronEight __attribute__((vector_size(32)));

/* DEFINE(type, suffix, attributes) for one number, and for a vector of eight. */
#define NEUTRON_FOR_EACH_WIDTH(DEFINE)         \
    DEFINE(int32_t, _1, static NEUTRON_INLINE) \
    DEFINE(NeutronEight, _8, NEUTRON_AVX2_INLINE)

/* Returns the number that becomes the result of two operands' stored values. */
typedef NeutronEight (*NeutronCombineEight)(const void *numbers, NeutronEight a, NeutronEight b);

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

#define NEUTRON_ROW_AVX2(name, Numbers, combine)                                                    \
    NEUTRON_AVX2 static void name##_row_avx2(const void *numbers, const NeutronTwoOperandRow *row) { \
        const Numbers copy = *(const Numbers *)numbers;                                              \
        neutron_row_avx2(&copy, &copy.result, row, combine##_8);                                     \
    }
#else
#define NEUTRON_FOR_EACH_WIDTH(DEFINE) DEFINE(int32_t, _1, static NEUTRON_INLINE)
#define NEUTRON_ROW_AVX2(name, Numbers, combine)
#endif

/* name_row() and name_row_avx2() for combine_1() and combine_8(), whose Numbers have a NeutronResult. Stores to the output can't
 * change the copy of the numbers, so that the copy stays in registers. */
#define NEUTRON_ROWS_OF_NUMBERS(name, Numbers, combine)                                                           \
    static NEUTRON_INLINE void name##_block(const void *numbers, const int8_t *a, const int8_t *b, int8_t *out,  \
                                            int32_t size) {                                                      \
        const Numbers *p = numbers;                                                                              \
        for (int32_t i = 0; i < size; i++) out[i] = neutron_result_of(combine##_1(p, a[i], b[i]), &p->result);   \
    }                                                                                                            \
    static void name##_row(const void *numbers, const NeutronTwoOperandRow *row) {                               \
        neutron_for_each_block(numbers, row, name##_block);                                                      \
    }                                                                                                            \
    NEUTRON_ROW_AVX2(name, Numbers, combine)

#endif
