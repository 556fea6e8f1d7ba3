/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's quantized sum and difference of two stored values (integer_ops/add.h, sub.h). */
#ifndef NEUTRON_SUM_H
#define NEUTRON_SUM_H

#include "two_operands.h"

typedef struct {
    int32_t zero_point, multiplier_high, multiplier_low;
    NeutronRounding rounding;
} NeutronSummand;

static inline NeutronSummand neutron_summand(int32_t zero_point, int32_t multiplier, int32_t shift) {
    return (NeutronSummand){zero_point, multiplier >> 11, multiplier & 2047, neutron_rounding(-shift)};
}

/* With these bounds a scaled operand is below 2^28, and the sum below 2^29. */
static inline bool neutron_summands_are_sound(int32_t a_zero_point, int32_t a_shift, int32_t b_zero_point,
                                              int32_t b_multiplier, int32_t b_shift) {
    return neutron_is_stored(a_zero_point) && neutron_is_stored(b_zero_point) && a_shift <= 0 && a_shift >= -31 &&
           b_shift <= 0 && b_shift >= -31 && b_multiplier != INT32_MIN;
}

typedef struct {
    NeutronSummand a, b;
    int32_t b_sign; /* -1 where b is subtracted, else 0 */
    NeutronResult result;
} NeutronSum;

/* An operand is the doubling high product of (value - zero point) * 2^20 and its multiplier, which is
 * floor((value - zero point) * multiplier / 2^11 + 1/2), without a product of more than 32 bits; then
 * neutron_shift_rounding. */
static NEUTRON_INLINE int32_t neutron_scaled_1(int32_t stored, const NeutronSummand *summand) {
    const int32_t value = stored - summand->zero_point;
    const int32_t low = (value * summand->multiplier_low + 1024) >> 11;
    return neutron_shift_rounding(value * summand->multiplier_high + low, summand->rounding);
}

#if NEUTRON_VECTORS
/* Where the processor has a high product, this is a single one. */
NEUTRON_VECTOR_INLINE NeutronWords neutron_scaled_words(NeutronWords stored, const NeutronSummand *summand) {
    const NeutronRoundingWords rounding = neutron_rounding_words(summand->rounding);
    const NeutronWords value = stored - summand->zero_point;
    if (NEUTRON_MULTIPLIES_HIGH) {
        const NeutronWords multiplier = neutron_words(summand->multiplier_high * 2048 + summand->multiplier_low);
        return neutron_shift_rounding_words(neutron_high_mul_words(value << 20, multiplier), &rounding);
    }
    const NeutronWords low = (value * summand->multiplier_low + 1024) >> 11;
    return neutron_shift_rounding_words(value * summand->multiplier_high + low, &rounding);
}
#endif

#define NEUTRON_DEFINE_SUM(type, suffix, attributes)                                                            \
    attributes type neutron_sum##suffix(const void *numbers, type a, type b) {                                  \
        const NeutronSum *p = numbers;                                                                          \
        return neutron_scaled##suffix(a, &p->a) + ((neutron_scaled##suffix(b, &p->b) ^ p->b_sign) - p->b_sign); \
    }
NEUTRON_FOR_EACH_WIDTH(NEUTRON_DEFINE_SUM)

#endif
