/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_integer_ops::DepthwiseConvPerChannel of int16 (integer_ops/depthwise_conv.h). */
#include "convolution_16.h"

bool depthwise_conv_2d_s16_check(const NeutronProgramView *program, const void *params,
                                 const NeutronWindowExtents *window) {
    const NeutronDepthwiseConv2dS16 *p = params;
    return p->group_inputs == 1 && neutron_convolution_16_is_sound(program, p, window, NEUTRON_LANES);
}

/* 8 products. `inputs`: those of the channels. */
static NEUTRON_INLINE void multiply_tap(uint64_t *accumulators, const int8_t *weights, const int16_t *inputs) {
    for (int32_t k = 0; k < NEUTRON_LANES; k++) {
        const int32_t product = weights[k] * inputs[k];
        accumulators[k] += (uint64_t)(int64_t)product;
    }
}

/* `count` output channels from `channel` on, a multiple of 8; padding is 0. */
static NEUTRON_INLINE void compute_block(const NeutronTapPosition *at, int32_t channel, int32_t count, const int8_t *weights,
                                         const void *constants, uint8_t *out, int32_t out_pitch) {
    const NeutronDepthwiseConv2dS16 *p = at->call->params;
    const int32_t pitch = at->input->channel_pitch, channel0 = channel / p->group_outputs;
    const bool each_its_own = p->group_outputs == 1;
    uint64_t accumulators[NEUTRON_LANES];
    neutron_begin_accumulators_16(accumulators, constants);
    for (int32_t i = 0; i < p->kernel_h; i++) {
        const uint8_t *row = neutron_tap_row(at, i, channel0);
        for (int32_t j = 0; j < p->kernel_w; j++, weights += NEUTRON_LANES) {
            const uint8_t *pixel = neutron_tap(at, row, j);
            if (pixel == NULL) continue;
            int16_t inputs[NEUTRON_LANES] = {0};
            if (each_its_own && count == NEUTRON_LANES) {
                neutron_load_block_16(inputs, pixel, pitch, NEUTRON_LANES);
            } else {
                for (int32_t k = 0; k < count; k++) {
                    const int32_t own = (channel + k) / p->group_outputs - channel0;
                    inputs[k] = neutron_load_16(pixel + (ptrdiff_t)own * pitch);
                }
            }
            multiply_tap(accumulators, weights, inputs);
        }
    }
    neutron_store_accumulators_16(p, constants, accumulators, out, out_pitch, count);
}

static NEUTRON_INLINE void compute(const NeutronKernelCall *call) {
    const NeutronDepthwiseConv2dS16 *p = call->params;
    neutron_compute_blocks(call, (size_t)p->kernel_h * (size_t)p->kernel_w * NEUTRON_LANES,
                           sizeof(NeutronRequantBlock16), compute_block);
}

void depthwise_conv_2d_s16_run_portable(const NeutronKernelCall *call) { compute(call); }

#if !NEUTRON_DSP
NEUTRON_FOR_VECTORS(compute, (const NeutronKernelCall *call), (call))

void depthwise_conv_2d_s16_run(const NeutronKernelCall *call) { NEUTRON_FASTEST(compute)(call); }
#endif
