/* SPDX-License-Identifier: BSD-3-Clause */
/* Convolutions of int16 activations with int8 weights: their check, their constants, and the portable way from an accumulator
 * to a stored value. An output element is what convolution.h states, with zero points of 0; sums are taken modulo 2^64. */
#ifndef NEUTRON_CONVOLUTION_16_H
#define NEUTRON_CONVOLUTION_16_H

#include "conv_2d/convolution.h"
#include "rescaling_16.h"

/* convolution.h goes through the window and its taps by these words. */
NEUTRON_STATIC_ASSERT(offsetof(NeutronConv2dS16, group_outputs) == offsetof(NeutronConv2dS8, group_outputs), "the same words");

void conv_2d_s16_run_portable(const NeutronKernelCall *call);
void depthwise_conv_2d_s16_run_portable(const NeutronKernelCall *call);
#if NEUTRON_X86_VARIANTS
bool conv_2d_s16_run_avx2(const NeutronKernelCall *call);
#endif

/* Everything but what the kernels differ in. block_bytes: packed weights of 8 output channels and one tap. */
bool neutron_convolution_16_is_sound(const NeutronProgramView *program, const NeutronConv2dS16 *p,
                                     const NeutronWindowExtents *window, uint64_t block_bytes);

/* ---- constants ------------------------------------------------------------------------------------------------------ */

/* One entry of the requantization table: 8 channels. */
typedef struct {
    uint32_t bias_low[NEUTRON_LANES];
    int32_t bias_high[NEUTRON_LANES], multiplier[NEUTRON_LANES], shift[NEUTRON_LANES];
} NeutronRequantBlock16;

static inline const NeutronRequantBlock16 *neutron_requant_blocks_16(const NeutronKernelCall *call,
                                                                     const NeutronConv2dS16 *p) {
    const void *base = neutron_base_address(call->bases, p->requant_base) + p->requant_offset;
    return base;
}

/* A channel's bias, as a sum begins with it. */
static inline uint64_t neutron_bias_16(const NeutronRequantBlock16 *table, int32_t k) {
    return (uint64_t)(uint32_t)table->bias_high[k] << 32 | table->bias_low[k];
}

/* 8 accumulators become their biases. */
static inline void neutron_begin_accumulators_16(uint64_t *accumulators, const NeutronRequantBlock16 *table) {
    for (int32_t k = 0; k < NEUTRON_LANES; k++) accumulators[k] = neutron_bias_16(table, k);
}

/* ---- requantization ------------------------------------------------------------------------------------------------- */

enum { NEUTRON_NARROW_SUMS = 1, NEUTRON_IN_DOUBLE = 2, NEUTRON_MOST_ROUNDING = 3 };

/* An accumulator, its bias included, to its value before it is bounded, for each rounding and any words. */
int32_t neutron_rescaled_16(const NeutronConv2dS16 *p, int32_t multiplier, int32_t shift, uint64_t sum);

/* A channel's accumulator, its bias included, to its stored value. */
static inline int16_t neutron_stored_16(const NeutronConv2dS16 *p, const NeutronRequantBlock16 *table, int32_t k,
                                        uint64_t sum) {
    const int32_t multiplier = table->multiplier[k], shift = table->shift[k];
    const int32_t scaled = p->rounding == 0 && neutron_is_short_product(sum, multiplier, shift)
                               ? neutron_short_product((int32_t)(uint32_t)sum, multiplier, shift)
                               : neutron_rescaled_16(p, multiplier, shift, sum);
    return (int16_t)neutron_bound(scaled, p->clamp_min, p->clamp_max);
}

/* The first `count` of 8 accumulators, biases included, to their stored values. */
static inline void neutron_store_accumulators_16(const NeutronConv2dS16 *p, const NeutronRequantBlock16 *table,
                                                 const uint64_t *accumulators, uint8_t *out, int32_t channel_pitch,
                                                 int32_t count) {
    for (int32_t k = 0; k < count; k++) {
        neutron_store_16(out + (ptrdiff_t)k * channel_pitch, neutron_stored_16(p, table, k, accumulators[k]));
    }
}

/* ---- products ------------------------------------------------------------------------------------------------------- */

/* Adds the products of one tap; 8 products of 16 by 8 bits fit 32 bits. */
static NEUTRON_INLINE void neutron_multiply_pixel_16(uint64_t *accumulators, const int8_t *weights, const uint8_t *pixel,
                                                     int32_t pitch, int32_t inputs) {
    for (; inputs > 0; inputs -= NEUTRON_LANES, weights += NEUTRON_LANES * NEUTRON_LANES) {
        int16_t block[NEUTRON_LANES] = {0};
        neutron_load_block_16(block, pixel, pitch, inputs < NEUTRON_LANES ? inputs : NEUTRON_LANES);
        pixel += (ptrdiff_t)NEUTRON_LANES * pitch;
        for (int32_t k = 0; k < NEUTRON_LANES; k++) {
            int32_t sum = 0;
            for (int32_t i = 0; i < NEUTRON_LANES; i++) sum += weights[k * NEUTRON_LANES + i] * block[i];
            accumulators[k] += (uint64_t)(int64_t)sum;
        }
    }
}


#endif
