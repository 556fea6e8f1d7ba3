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

/* The taps that lie inside; padding is 0. */
static NEUTRON_INLINE void add_group(uint64_t *accumulators, const NeutronTapPosition16 *at, const int8_t *weights,
                                     int32_t input_channel0) {
    const NeutronConv2dS16 *p = at->p;
    const NeutronBuffer *input = at->input;
    const size_t tap_bytes = neutron_blocks_of(p->group_inputs) * NEUTRON_LANES * NEUTRON_LANES;
    for (int32_t i = 0; i < p->kernel_h; i++, weights += (size_t)p->kernel_w * tap_bytes) {
        const int32_t row = at->row + i * p->dilation_h;
        if (row < 0 || row >= input->rows) continue;
        const uint8_t *line = neutron_element_address(at->call->bases, input, at->n, row, 0, input_channel0);
        for (int32_t j = 0; j < p->kernel_w; j++) {
            const int32_t col = at->col + j * p->dilation_w;
            if (col < 0 || col >= input->cols) continue;
            const uint8_t *pixel = line + (ptrdiff_t)col * input->col_pitch;
            neutron_multiply_pixel_16(accumulators, weights + (size_t)j * tap_bytes, pixel, input->channel_pitch, p->group_inputs);
        }
    }
}

static void add_taps(uint64_t *accumulators, const NeutronTapPosition16 *at, int32_t channel, int32_t count,
                     const int8_t *weights) {
    const NeutronConv2dS16 *p = at->p;
    const int32_t group0 = channel / p->group_outputs, group1 = (channel + count - 1) / p->group_outputs;
    if (group0 == group1) {
        add_group(accumulators, at, weights, group0 * p->group_inputs);
        return;
    }
    /* A block that lies across groups: once over each group's inputs, taking its own channels from the result. */
    for (int32_t group = group0; group <= group1; group++) {
        uint64_t sums[NEUTRON_LANES] = {0};
        add_group(sums, at, weights, group * p->group_inputs);
        for (int32_t k = 0; k < count; k++) {
            if ((channel + k) / p->group_outputs == group) accumulators[k] += sums[k];
        }
    }
}

void conv_2d_s16_run_portable(const NeutronKernelCall *call) {
    const NeutronConv2dS16 *p = call->params;
    const size_t taps = (size_t)p->kernel_h * (size_t)p->kernel_w;
    neutron_compute_blocks_16(call, taps * neutron_blocks_of(p->group_inputs) * NEUTRON_LANES * NEUTRON_LANES, add_taps);
}

void conv_2d_s16_run(const NeutronKernelCall *call) {
#if NEUTRON_X86_VARIANTS
    if (neutron_has_avx2() && conv_2d_s16_run_avx2(call)) return;
#endif
    conv_2d_s16_run_portable(call);
}

#endif
