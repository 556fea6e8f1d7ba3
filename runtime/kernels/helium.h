/* SPDX-License-Identifier: BSD-3-Clause */
/* The code of kernels for the integer vectors of Armv8.1-M (Helium, MVE-I), by ACLE's intrinsics: exactly the portable code's numbers.
 * Such a core has the DSP extension too, whose kernels run where there are none for Helium. */
#ifndef NEUTRON_HELIUM_H
#define NEUTRON_HELIUM_H

#include "dsp.h"
#include "elements.h"

#if NEUTRON_DSP && defined(__ARM_FEATURE_MVE) && !defined(NEUTRON_PORTABLE_ONLY)
#define NEUTRON_HELIUM (__ARM_FEATURE_MVE & 1)
#else
#define NEUTRON_HELIUM 0
#endif

#if NEUTRON_HELIUM

#include <arm_mve.h>

/* Numbers of 8 channels are two registers: of the even channels, and of the odd ones. Multiplications that widen make such pairs, and
 * narrowing puts them in order. */
typedef struct {
    int32x4_t val[2];
} NeutronEight;

static NEUTRON_INLINE NeutronEight neutron_load_eight_words(const int32_t *from) {
    const uint32x4_t offsets = vidupq_n_u32(0, 8);
    return (NeutronEight){{vldrwq_gather_offset_s32(from, offsets), vldrwq_gather_offset_s32(from + 1, offsets)}};
}

/* The scales of 8 channels. left, right: amounts to the left, not below 0 and not above 0. */
typedef struct {
    NeutronEight multiplier, left, right;
    bool shifts_left; /* any of them */
} NeutronScales;

static NEUTRON_INLINE void neutron_prepare_scales(NeutronScales *scales, const int32_t *multiplier, const int32_t *shift) {
    const int32x4_t zero = vdupq_n_s32(0);
    const NeutronEight given = neutron_load_eight_words(shift), multipliers = neutron_load_eight_words(multiplier);
    int32_t largest = 0;
    NEUTRON_UNROLL
    for (int i = 0; i < 2; i++) {
        scales->multiplier.val[i] = vmaxq_s32(multipliers.val[i], vdupq_n_s32(-INT32_MAX));
        scales->left.val[i] = vmaxq_s32(vminq_s32(given.val[i], vdupq_n_s32(30)), zero);
        scales->right.val[i] = vminq_s32(vmaxq_s32(given.val[i], vdupq_n_s32(-31)), zero);
        largest = vmaxvq_s32(largest, given.val[i]);
    }
    scales->shifts_left = largest > 0;
}

/* neutron_rounding_shift_right() of each lane by -right. The instruction rounds halves up; negative numbers are one less before it, so
 * that theirs go down. INT32_MIN stays as it is, and is a multiple of every power. */
static NEUTRON_INLINE int32x4_t neutron_shift_right_helium(int32x4_t x, int32x4_t right) {
    const int32x4_t below = vshrq_n_s32(vandq_s32(x, right), 31);
    return vrshlq_s32(vqaddq_s32(x, below), right);
}

/* The numbers times 2^left, modulo 2^32: the first step of neutron_requantize(). */
static NEUTRON_INLINE void neutron_shift_left_eight(NeutronEight *x, const NeutronScales *by) {
    x->val[0] = vshlq_s32(x->val[0], by->left.val[0]);
    x->val[1] = vshlq_s32(x->val[1], by->left.val[1]);
}

/* The further steps of neutron_requantize(): the first rounding is that of neutron_high_mul(). */
static NEUTRON_INLINE void neutron_requantize_eight(NeutronEight *x, const NeutronScales *by) {
    NEUTRON_UNROLL
    for (int i = 0; i < 2; i++) {
        x->val[i] = neutron_shift_right_helium(vqrdmulhq_s32(x->val[i], by->multiplier.val[i]), by->right.val[i]);
    }
}

/* How rescaled numbers of 8 channels are stored: lanes are a predicate of 16-bit lanes. */
typedef struct {
    int16x8_t low, high;
    int16_t zero_point;
    int32_t pitch;
    mve_pred16_t lanes;
} NeutronResults;

static inline mve_pred16_t neutron_lanes_helium(int32_t lane0, int32_t lane1) {
    return (mve_pred16_t)((UINT32_C(1) << 2 * lane1) - (UINT32_C(1) << 2 * lane0));
}

static NEUTRON_INLINE NeutronResults neutron_results_helium(int32_t zero_point, int32_t low, int32_t high, int32_t pitch) {
    return (NeutronResults){vdupq_n_s16((int16_t)low), vdupq_n_s16((int16_t)high), (int16_t)zero_point, pitch, UINT16_MAX};
}

/* Numbers that do not fit 16 bits, with the zero point or without, end at the same bound as their nearest number that does. */
static NEUTRON_INLINE void neutron_store_eight_helium(uint8_t *to, const NeutronResults *as, NeutronEight numbers) {
    int16x8_t x = vqmovntq_s32(vqmovnbq_s32(vdupq_n_s16(0), numbers.val[0]), numbers.val[1]);
    x = vminq_s16(vmaxq_s16(vqaddq_n_s16(x, as->zero_point), as->low), as->high);
    if (as->pitch == 1) {
        vstrbq_p_s16((int8_t *)to, x, as->lanes);
        return;
    }
    int16_t lanes[NEUTRON_LANES];
    vst1q_s16(lanes, x);
    for (int32_t i = 0; i < NEUTRON_LANES; i++, to += as->pitch) {
        if ((as->lanes >> 2 * i & 1) != 0) *to = (uint8_t)lanes[i];
    }
}

#endif
#endif
