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

/* The scales of four channels. left, right: amounts to the left, the one not below 0 and the other not above 0. */
typedef struct {
    int32x4_t multiplier, left, right;
} NeutronScales;

static NEUTRON_INLINE NeutronScales neutron_scales(const int32_t *multiplier, const int32_t *shift) {
    const int32x4_t zero = vdupq_n_s32(0), given = vldrwq_s32(shift);
    return (NeutronScales){
        .multiplier = vmaxq_s32(vldrwq_s32(multiplier), vdupq_n_s32(-INT32_MAX)),
        .left = vmaxq_s32(vminq_s32(given, vdupq_n_s32(30)), zero),
        .right = vminq_s32(vmaxq_s32(given, vdupq_n_s32(-31)), zero),
    };
}

/* round(x / 2^-right), ties away from zero, for each lane. The instruction rounds halves up; negative numbers are one less before it, so
 * that theirs go down. INT32_MIN stays as it is, and is a multiple of every power. */
static NEUTRON_INLINE int32x4_t neutron_shift_right_helium(int32x4_t x, int32x4_t right) {
    const int32x4_t below = vshrq_n_s32(vandq_s32(x, right), 31);
    return vrshlq_s32(vqaddq_s32(x, below), right);
}

/* neutron_requantize() of each lane: the first rounding is that of neutron_high_mul(). */
static NEUTRON_INLINE int32x4_t neutron_requantize_helium(int32x4_t x, const NeutronScales *by) {
    const int32x4_t high = vqrdmulhq_s32(vshlq_s32(x, by->left), by->multiplier);
    return neutron_shift_right_helium(high, by->right);
}

/* Lanes [lane0, lane1) of 8 lanes of 32 bits, as the predicates of both halves: 16 bits each. */
static inline uint32_t neutron_lanes_helium(int32_t lane0, int32_t lane1) {
    return (UINT32_MAX >> (32 - 4 * lane1)) & ~((UINT32_C(1) << 4 * lane0) - 1);
}

/* The low bytes of the lanes of a predicate, one pitch apart. */
static NEUTRON_INLINE void neutron_store_lanes_helium(uint8_t *to, int32_t pitch, int32x4_t x, uint32_t lanes) {
    int8_t *const out = (int8_t *)to;
    if (pitch == 1) {
        vstrbq_p_s32(out, x, (mve_pred16_t)lanes);
    } else {
        vstrbq_scatter_offset_p_s32(out, vmulq_n_u32(vidupq_n_u32(0, 1), (uint32_t)pitch), x, (mve_pred16_t)lanes);
    }
}

#endif
#endif
