/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_integer_ops::ConvPerChannel of int16 (integer_ops/conv.h), and FullyConnected and FullyConnectedPerChannel
 * of int16 (integer_ops/fully_connected.h) with a column for each input vector. */
#include "convolution_16.h"

bool conv_2d_s16_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) {
    const NeutronConv2dS16 *p = params;
    if (p->group_inputs < 1) return false;
    const uint64_t block_bytes = (uint64_t)neutron_blocks_of(p->group_inputs) * NEUTRON_LANES * NEUTRON_LANES;
    return neutron_convolution_16_is_sound(program, p, window, block_bytes);
}

#if !NEUTRON_DSP

/* Adds the taps inside the input; padding is 0. */
static NEUTRON_INLINE void add_group(uint64_t *accumulators, const NeutronTapPosition *at, const int8_t *weights,
                                     int32_t input_channel0) {
    const NeutronConv2dS8 *p = at->p;
    const size_t tap_bytes = neutron_blocks_of(p->group_inputs) * NEUTRON_LANES * NEUTRON_LANES;
    for (int32_t i = 0; i < p->kernel_h; i++) {
        const uint8_t *row = neutron_tap_row(at, i, input_channel0);
        for (int32_t j = 0; j < p->kernel_w; j++, weights += tap_bytes) {
            const uint8_t *pixel = neutron_tap(at, row, j);
            if (pixel == NULL) continue;
            neutron_multiply_pixel_16(accumulators, weights, pixel, at->input->channel_pitch, p->group_inputs);
        }
    }
}

static void add_taps(uint64_t *accumulators, const NeutronTapPosition *at, int32_t channel, int32_t count,
                     const int8_t *weights) {
    const NeutronConv2dS8 *p = at->p;
    const int32_t group0 = channel / p->group_outputs, group1 = (channel + count - 1) / p->group_outputs;
    if (group0 == group1) {
        add_group(accumulators, at, weights, group0 * p->group_inputs);
        return;
    }
    /* A block of several groups: goes over each group's inputs, and takes the group's channels from the result. */
    for (int32_t group = group0; group <= group1; group++) {
        uint64_t sums[NEUTRON_LANES] = {0};
        add_group(sums, at, weights, group * p->group_inputs);
        for (int32_t k = 0; k < count; k++) {
            if ((channel + k) / p->group_outputs == group) accumulators[k] += sums[k];
        }
    }
}

static void compute_block(const NeutronTapPosition *at, int32_t channel, int32_t count, const int8_t *weights,
                          const void *constants, uint8_t *out, int32_t out_pitch) {
    uint64_t accumulators[NEUTRON_LANES];
    neutron_begin_accumulators_16(accumulators, constants);
    add_taps(accumulators, at, channel, count, weights);
    neutron_store_accumulators_16(at->call->params, constants, accumulators, out, out_pitch, count);
}

void conv_2d_s16_run_portable(const NeutronKernelCall *call) {
    const NeutronConv2dS16 *p = call->params;
    const size_t taps = (size_t)p->kernel_h * (size_t)p->kernel_w;
    neutron_compute_blocks(call, taps * neutron_blocks_of(p->group_inputs) * NEUTRON_LANES * NEUTRON_LANES,
                           sizeof(NeutronRequantBlock16), compute_block);
}

void conv_2d_s16_run(const NeutronKernelCall *call) {
#if NEUTRON_X86_VARIANTS
    if (neutron_has_vectors() && conv_2d_s16_run_avx2(call)) return;
#endif
    conv_2d_s16_run_portable(call);
}

#endif
