/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_1x1_s8's variant for fully connected layers of one input, for the DSP extension: four output channels at a time
 * go through the inputs as they lie in memory. Beside other convolutions, whose code the general kernel shares, it would be
 * more code; firmware of such layers alone needs nothing else, and little stack. */
#include "conv_2d/convolution.h"

#if NEUTRON_DSP && !NEUTRON_HELIUM

enum { FOUR = 4, BLOCK_BYTES = NEUTRON_LANES * NEUTRON_LANES };

/* Adds the products of the inputs [x, end), whole blocks of 8, with the weights of four channels. */
static __attribute__((noinline)) void add_products(uint32_t *sums, const uint8_t *x, const uint8_t *end,
                                                   const int8_t *weights) {
    uint32_t sum[FOUR];
    NEUTRON_UNROLL
    for (int k = 0; k < FOUR; k++) sum[k] = sums[k];
    for (; x != end; x += NEUTRON_LANES, weights += BLOCK_BYTES) {
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

static inline int32_t rescaled(int32_t x, int32_t multiplier, int32_t word) {
    const int32_t shift = (int8_t)word, fraction = (int32_t)((uint32_t)word >> 8 << 12);
    if (!neutron_dsp_scale_fits(multiplier, shift)) {
        return neutron_rounded_once(x, neutron_sound_multiplier(multiplier), word);
    }
    return neutron_dsp_rounded_once(x, neutron_dsp_scale(multiplier + (fraction < 0), shift, 0), fraction);
}

void conv_2d_1x1_s8_run_vector(const NeutronKernelCall *call) {
    const NeutronConv2d1x1S8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *output = &call->buffers[p->output];
    const int32_t zero_point = p->output_zero_point, low = p->clamp_min - zero_point, high = p->clamp_max - zero_point;
    const size_t blocks = neutron_blocks_of(p->group_inputs), rest_bytes = (size_t)p->group_inputs % NEUTRON_LANES;
    const uint8_t *const first = neutron_element_address(call->bases, &call->buffers[p->input], 0, 0, 0, 0);
    const uint8_t *const end = first + ((size_t)p->group_inputs - rest_bytes);
    uint8_t *out = neutron_element_address(call->bases, output, 0, 0, 0, w->channel0);
    const size_t held = (size_t)(w->channel0 - p->constant_channel0) / NEUTRON_LANES;
    const int8_t *weights = neutron_packed_weights(call, p) + held * blocks * BLOCK_BYTES;
    const NeutronRequantBlock *table = neutron_requant_blocks(call, p) + held;
    uint8_t rest[NEUTRON_LANES] = {0};
    memcpy(rest, end, rest_bytes);
    for (int32_t channel = w->channel0; channel < w->channel1; channel += FOUR) {
        const int32_t lane = channel % NEUTRON_LANES;
        const int8_t *const from = weights + lane * NEUTRON_LANES;
        uint32_t sums[FOUR];
        memcpy(sums, table->bias + lane, sizeof sums);
        add_products(sums, first, end, from);
        if (rest_bytes != 0) add_products(sums, rest, rest + NEUTRON_LANES, from + (blocks - 1) * BLOCK_BYTES);
        for (int32_t k = 0; k < FOUR && channel + k < w->channel1; k++, out += output->channel_pitch) {
            const int32_t x = rescaled((int32_t)sums[k], table->multiplier[lane + k], table->shift[lane + k]);
            *out = (uint8_t)(neutron_bound(x, low, high) + zero_point);
        }
        if (lane != 0) {
            weights += blocks * BLOCK_BYTES;
            table++;
        }
    }
}

#endif
