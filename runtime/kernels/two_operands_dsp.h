/* SPDX-License-Identifier: BSD-3-Clause */
/* Loops over the windows of kernels with two operands, four elements at a time, for the DSP extension. */
#ifndef NEUTRON_TWO_OPERANDS_DSP_H
#define NEUTRON_TWO_OPERANDS_DSP_H

#include "elements_dsp.h"

#if NEUTRON_DSP

/* The conversion of an operand to a number of the common scale. */
typedef struct {
    uint32_t zero_points; /* less two */
    int32_t multiplier;
    NeutronRounding rounding;
} NeutronOperandDsp;

static inline NeutronOperandDsp neutron_operand_dsp(int32_t zero_point, int32_t multiplier, int32_t shift) {
    return (NeutronOperandDsp){neutron_twice(-zero_point), multiplier, neutron_rounding(-shift)};
}

/* `doubled` is twice what is multiplied. */
static NEUTRON_INLINE int32_t neutron_scaled_dsp(int32_t doubled, const NeutronOperandDsp *operand) {
    return neutron_shift_rounding(neutron_rounded_high_word(doubled, operand->multiplier), operand->rounding);
}

/* Twice the lower number of a pair, or the upper one, times 2^left. */
static NEUTRON_INLINE int32_t neutron_lower_dsp(uint32_t pair, const int32_t left) {
    return left >= 15 ? (int32_t)(pair << (left + 1)) : (int32_t)(pair << 16) >> (15 - left);
}
static NEUTRON_INLINE int32_t neutron_upper_dsp(uint32_t pair, const int32_t left) {
    return neutron_lower_dsp(pair >> 16, left);
}

/* Four elements, (value - zero point) * 2^left each, scaled. left: 0 to 22, a constant. */
static NEUTRON_INLINE void neutron_scale_word_dsp(int32_t *to, uint32_t word, const NeutronOperandDsp *operand,
                                                  const int32_t left) {
    const uint32_t even = neutron_add_even_bytes(operand->zero_points, word);
    const uint32_t odd = neutron_add_odd_bytes(operand->zero_points, word);
    to[0] = neutron_scaled_dsp(neutron_lower_dsp(even, left), operand);
    to[1] = neutron_scaled_dsp(neutron_lower_dsp(odd, left), operand);
    to[2] = neutron_scaled_dsp(neutron_upper_dsp(even, left), operand);
    to[3] = neutron_scaled_dsp(neutron_upper_dsp(odd, left), operand);
}

/* The result's scale, whatever it is. Where it does not fit, `of` holds the shift itself, and no rounding. */
typedef struct {
    NeutronDspScale of;
    bool fits;
} NeutronResultScaleDsp;

static inline NeutronResultScaleDsp neutron_result_scale_dsp(int32_t multiplier, int32_t shift, int32_t zero_point) {
    NeutronResultScaleDsp scale = {{multiplier, 0, shift, zero_point}, neutron_dsp_scale_fits(multiplier, shift)};
    if (scale.fits) scale.of = neutron_dsp_scale(multiplier, shift, zero_point);
    return scale;
}

/* x times a scale that does not fit, with the zero point; |x| < 2^29. */
int32_t neutron_unfit_result_dsp(int32_t x, const NeutronDspScale *scale);

/* x times any scale. */
static NEUTRON_INLINE int32_t neutron_result_dsp(int32_t x, const NeutronResultScaleDsp *scale) {
    return scale->fits ? neutron_dsp_rounded_twice(x, scale->of) : neutron_unfit_result_dsp(x, &scale->of);
}

/* `words` words of both operands, one at least, to the result: each word is read before it is written. */
typedef void (*NeutronTwoOperandWords)(const void *numbers, const uint8_t *a, const uint8_t *b, uint8_t *out,
                                       int32_t words);

/* Computes all of the call, whatever its layout: elements that are not side by side go through a block of memory. */
void neutron_two_operands_dsp(const NeutronKernelCall *call, uint32_t a, uint32_t b, uint32_t out, const void *numbers,
                              NeutronTwoOperandWords words);

#endif
#endif
