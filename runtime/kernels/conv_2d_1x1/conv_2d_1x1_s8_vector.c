/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_1x1_s8's variant for fully connected layers of one input, for the DSP extension: four output channels at a time
 * go through the inputs as they lie in memory. Beside the general kernel it is as much code again and no faster; firmware
 * of such layers alone needs nothing else, and little stack. */
#include "conv_2d/convolution.h"

#if NEUTRON_DSP

enum { FOUR = 4 };

typedef struct {
    const uint8_t *first, *rest; /* whole blocks of 8, and the last one where it is not whole */
    uint32_t whole, blocks;
} Inputs;

static __attribute__((noinline)) void multiply_four(uint32_t *sums, const Inputs *inputs, const int8_t *weights) {
    uint32_t sum[FOUR];
    NEUTRON_UNROLL
    for (int k = 0; k < FOUR; k++) sum[k] = sums[k];
    for (uint32_t i = 0; i < inputs->blocks; i++, weights += NEUTRON_LANES * NEUTRON_LANES) {
        const uint8_t *x = i < inputs->whole ? inputs->first + (size_t)i * NEUTRON_LANES : inputs->rest;
        NEUTRON_UNROLL
        for (int j = 0; j < 2; j++) {
            const uint32_t word = neutron_load_word(x + 4 * j);
            const uint32_t even = neutron_kept(neutron_even_bytes(word)), odd = neutron_kept(neutron_odd_bytes(word));
            NEUTRON_UNROLL
            for (int k = 0; k < FOUR; k++) {
                const uint32_t w = neutron_load_aligned_word(weights + NEUTRON_LANES * k + 4 * j);
                sum[k] = neutron_add_products(sum[k], neutron_even_bytes(w), neutron_odd_bytes(w), even, odd);
            }
        }
    }
    NEUTRON_UNROLL
    for (int k = 0; k < FOUR; k++) sums[k] = sum[k];
}

void conv_2d_1x1_s8_run_vector(const NeutronKernelCall *call) {
    const NeutronConv2d1x1S8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *output = &call->buffers[p->output];
    const int32_t zero_point = p->output_zero_point;
    uint8_t rest[NEUTRON_LANES] = {0};
    const Inputs inputs = {
        .first = neutron_element_address(call->bases, &call->buffers[p->input], 0, 0, 0, 0),
        .rest = rest,
        .whole = (uint32_t)p->group_inputs / NEUTRON_LANES,
        .blocks = (uint32_t)neutron_blocks_of(p->group_inputs),
    };
    memcpy(rest, inputs.first + inputs.whole * NEUTRON_LANES, (uint32_t)p->group_inputs % NEUTRON_LANES);
    uint8_t *out = neutron_element_address(call->bases, output, 0, 0, 0, w->channel0);
    uint32_t sums[FOUR] = {0};
    for (int32_t channel = w->channel0; channel < w->channel1; channel++, out += output->channel_pitch) {
        const int32_t held = channel - p->constant_channel0, lane = held % NEUTRON_LANES;
        const size_t block = (size_t)(held / NEUTRON_LANES);
        const NeutronRequantBlock *table = neutron_requant_blocks(call, p) + block;
        if (lane % FOUR == 0) {
            memcpy(sums, table->bias + lane, sizeof sums);
            multiply_four(sums, &inputs,
                          neutron_packed_weights(call, p) + (block * inputs.blocks * NEUTRON_LANES + (size_t)lane) * NEUTRON_LANES);
        }
        const int32_t multiplier = neutron_sound_multiplier(table->multiplier[lane]);
        const int32_t scaled = neutron_rounded_once((int32_t)sums[lane % FOUR], multiplier, table->shift[lane]);
        *out = (uint8_t)(neutron_bound(scaled, p->clamp_min - zero_point, p->clamp_max - zero_point) + zero_point);
    }
}

#endif
