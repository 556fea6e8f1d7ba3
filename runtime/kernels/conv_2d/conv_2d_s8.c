/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_integer_ops::ConvPerChannel (integer_ops/conv.h). */
#include "convolution.h"

bool conv_2d_s8_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) {
    const NeutronConv2dS8 *p = params;
    if (p->group_inputs < 1) return false;
    const uint64_t block_bytes = (uint64_t)neutron_blocks_of(p->group_inputs) * NEUTRON_LANES * NEUTRON_LANES;
    return neutron_convolution_is_sound(program, p, window, block_bytes);
}

#if !NEUTRON_DSP

/* Adds all taps of 8 output channels whose inputs start at input_channel0. `weights`: the block's. */
static void add_taps(uint32_t *accumulators, const NeutronTapPosition *at, const int8_t *weights, int32_t input_channel0) {
    const NeutronConv2dS8 *p = at->p;
    const size_t tap_bytes = neutron_blocks_of(p->group_inputs) * NEUTRON_LANES * NEUTRON_LANES;
    uint8_t padding[NEUTRON_LANES];
    memset(padding, p->input_zero_point, sizeof padding);
    NeutronSums sums = {0};
    for (int32_t i = 0; i < p->kernel_h; i++) {
        const uint8_t *row = neutron_tap_row(at, i, input_channel0);
        for (int32_t j = 0; j < p->kernel_w; j++, weights += tap_bytes) {
            const uint8_t *pixel = neutron_tap(at, row, j);
            neutron_multiply_pixel(&sums, weights, pixel != NULL ? pixel : padding,
                                   pixel != NULL ? at->input->channel_pitch : 0, p->group_inputs);
        }
    }
    neutron_add_sums(accumulators, &sums);
}

/* `count` output channels from `channel` on, a multiple of 8. */
static void compute_block(const NeutronTapPosition *at, int32_t channel, int32_t count, const int8_t *weights,
                          const void *constants, uint8_t *out, int32_t out_pitch) {
    const NeutronConv2dS8 *p = at->p;
    const NeutronRequantBlock *table = constants;
    uint32_t accumulators[NEUTRON_LANES], group_sums[NEUTRON_LANES];
    for (int32_t k = 0; k < NEUTRON_LANES; k++) accumulators[k] = (uint32_t)table->bias[k];
    const int32_t group0 = channel / p->group_outputs, group1 = (channel + count - 1) / p->group_outputs;
    if (group0 == group1) {
        add_taps(accumulators, at, weights, group0 * p->group_inputs);
    } else {
        /* A block of several groups: goes over each group's inputs, and takes the group's channels from the result. */
        for (int32_t group = group0; group <= group1; group++) {
            memset(group_sums, 0, sizeof group_sums);
            add_taps(group_sums, at, weights, group * p->group_inputs);
            for (int32_t k = 0; k < count; k++) {
                if ((channel + k) / p->group_outputs == group) accumulators[k] += group_sums[k];
            }
        }
    }
    neutron_store_accumulators(p, table, accumulators, out, out_pitch, count);
}

void conv_2d_s8_run_portable(const NeutronKernelCall *call) {
    const NeutronConv2dS8 *p = call->params;
    const size_t taps = (size_t)p->kernel_h * (size_t)p->kernel_w;
    neutron_compute_blocks(call, taps * neutron_blocks_of(p->group_inputs) * NEUTRON_LANES * NEUTRON_LANES,
                           sizeof(NeutronRequantBlock), compute_block);
}

void conv_2d_s8_run(const NeutronKernelCall *call) {
#if NEUTRON_X86_VARIANTS
    if (neutron_has_vectors() && conv_2d_s8_run_avx2(call)) return;
#elif NEUTRON_NEON_VARIANTS
    if (conv_2d_s8_run_neon(call)) return;
#endif
    conv_2d_s8_run_portable(call);
}

#endif
