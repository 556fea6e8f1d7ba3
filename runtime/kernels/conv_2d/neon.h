/* SPDX-License-Identifier: BSD-3-Clause */
/* The code of the NEON variants of the convolution kernels: pixels by 8 output channels in registers, requantization of 8 channels.
 *
 * With the dot product extension of Armv8.2 (Arm DDI 0487, SDOT by element) two registers of 4 output channels by 4 inputs come from
 * each two of a packed block, and one pixel's 4 inputs are one lane; a sum is a lane then. Without it, products of bytes are widened and
 * added in pairs; an output channel is a register of partial sums. */
#ifndef NEUTRON_CONVOLUTION_NEON_H
#define NEUTRON_CONVOLUTION_NEON_H

#include "convolution.h"
#include "vector.h"

#if NEUTRON_NEON_VARIANTS

#include "dot_neon.h"

/* Most pixels of a tile. */
enum { NEUTRON_PIXELS_DOT = 8, NEUTRON_PIXELS_NEON = 3 };

/* ---- requantization ------------------------------------------------------------------------------------------------- */

/* Where results below 0 are bounded to 0 or more, and multipliers are not negative, halves below 0 may go either way. A scale of
 * FROM_ZERO does not shift left. */
typedef enum { NEUTRON_RESCALE_FROM_ZERO, NEUTRON_RESCALE_ANY, NEUTRON_RESCALE_ONCE } NeutronRescaleKind;

/* 8 channels. */
typedef struct {
    int32x4_t bias[2], multiplier[2], left[2], right[2]; /* right: 0 or below, as the instruction takes it */
} NeutronRescaleNeon;

/* The output's bounds and zero point. */
typedef struct {
    int8x16_t low, high;
    int16x8_t zero_point;
} NeutronRangeNeon;

static NEUTRON_INLINE NeutronRangeNeon neutron_range_neon(const NeutronConv2dS8 *p) {
    return (NeutronRangeNeon){vdupq_n_s8((int8_t)p->clamp_min), vdupq_n_s8((int8_t)p->clamp_max),
                              vdupq_n_s16((int16_t)p->output_zero_point)};
}

static NEUTRON_INLINE NeutronRescaleNeon neutron_rescale_neon(const NeutronRequantBlock *table) {
    NeutronRescaleNeon r;
    NEUTRON_UNROLL
    for (int i = 0; i < 2; i++) {
        const int32x4_t shift =
            vminq_s32(vmaxq_s32(vld1q_s32(table->shift + 4 * i), vdupq_n_s32(-31)), vdupq_n_s32(30));
        r.bias[i] = vld1q_s32(table->bias + 4 * i);
        r.multiplier[i] = vmaxq_s32(vld1q_s32(table->multiplier + 4 * i), vdupq_n_s32(-INT32_MAX));
        r.left[i] = vmaxq_s32(shift, vdupq_n_s32(0));
        r.right[i] = vminq_s32(shift, vdupq_n_s32(0));
    }
    return r;
}

/* The kind of 8 channels that are rounded twice. */
static NEUTRON_INLINE NeutronRescaleKind neutron_rescale_kind(const NeutronConv2dS8 *p, const NeutronRescaleNeon *r) {
    const int32x4_t left = vorrq_s32(r->left[0], r->left[1]), least = vminq_s32(r->multiplier[0], r->multiplier[1]);
    const bool from_zero = p->clamp_min >= p->output_zero_point && vmaxvq_s32(left) == 0 && vminvq_s32(least) >= 0;
    return from_zero ? NEUTRON_RESCALE_FROM_ZERO : NEUTRON_RESCALE_ANY;
}

/* 4 of 8 sums with their biases, as neutron_rounded_twice(). */
static NEUTRON_INLINE int32x4_t neutron_rescaled_neon(int32x4_t x, const NeutronRescaleNeon *r, int half,
                                                      const NeutronRescaleKind kind) {
    if (kind == NEUTRON_RESCALE_FROM_ZERO) return vrshlq_s32(vqrdmulhq_s32(x, r->multiplier[half]), r->right[half]);
    const int32x4_t y = vqrdmulhq_s32(vshlq_s32(x, r->left[half]), r->multiplier[half]);
    return vrshlq_s32(vsraq_n_s32(y, vandq_s32(y, r->right[half]), 31), r->right[half]);
}

/* The same as neutron_rounded_once(), of which a channel's word has the shift and a fraction of the multiplier. */
static NEUTRON_INLINE int32x4_t neutron_rounded_once_neon(int32x4_t x, const NeutronRequantBlock *table, int half) {
    const int32x4_t multiplier = vmaxq_s32(vld1q_s32(table->multiplier + 4 * half), vdupq_n_s32(-INT32_MAX));
    const int32x4_t word = vld1q_s32(table->shift + 4 * half), low = vandq_s32(vshrq_n_s32(word, 8), vdupq_n_s32(0xFFFFF));
    const int32x4_t shift =
        vminq_s32(vmaxq_s32(vshrq_n_s32(vshlq_n_s32(word, 24), 24), vdupq_n_s32(-31)), vdupq_n_s32(30));
    const int32x4_t right = vsubq_s32(shift, vdupq_n_s32(31));
    const int64x2_t a = vmull_s32(vget_low_s32(x), vget_low_s32(multiplier)), b = vmull_high_s32(x, multiplier);
    const int64x2_t fine_a = vsraq_n_s64(a, vmull_s32(vget_low_s32(x), vget_low_s32(low)), 20);
    const int64x2_t fine_b = vsraq_n_s64(b, vmull_high_s32(x, low), 20);
    return vqmovn_high_s64(vqmovn_s64(vrshlq_s64(fine_a, vmovl_s32(vget_low_s32(right)))),
                           vrshlq_s64(fine_b, vmovl_high_s32(right)));
}

/* Rescaled sums of two pixels to bytes. */
static NEUTRON_INLINE int8x16_t neutron_stored_neon(const int32x4_t *a, const int32x4_t *b, const NeutronRangeNeon *range) {
    const int16x8_t first = vqaddq_s16(vqmovn_high_s32(vqmovn_s32(a[0]), a[1]), range->zero_point);
    const int16x8_t second = vqaddq_s16(vqmovn_high_s32(vqmovn_s32(b[0]), b[1]), range->zero_point);
    const int8x16_t bytes = vqmovn_high_s16(vqmovn_s16(first), second);
    return vminq_s8(vmaxq_s8(bytes, range->low), range->high);
}

/* All `channels` output channels, from a multiple of 8 on, of a line of pixels with so many inputs. block_bytes: packed weights of 8
 * channels. */
void neutron_compute_line_neon(const NeutronConv2dS8 *p, const NeutronLine *line, int32_t inputs, const int8_t *weights,
                               size_t block_bytes, const NeutronRequantBlock *table, int32_t channels);

#endif
#endif
