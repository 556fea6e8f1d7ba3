/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_1x1_s8's variant for fully connected layers of one input, for the DSP extension: the inputs are widened, and
 * four output channels at a time go through them. Beside other convolutions, whose code the general kernel shares, it would be
 * more code; firmware of such layers alone needs nothing else, and little stack. */
#include "conv_2d/convolution_dsp.h"

#if NEUTRON_DSP && !NEUTRON_HELIUM

enum {
    FOUR = 4,
    BLOCK_BYTES = NEUTRON_LANES * NEUTRON_LANES,
    BLOCKS = 20,   /* of inputs that are widened at a time */
    CHANNELS = 64, /* output channels whose sums wait for the other inputs, a multiple of 8 */
};

/* Widens `words` words of inputs, of which the first `inputs` are there and the others are 0. */
static void widen(uint32_t *to, const uint8_t *from, size_t inputs, size_t words) {
    uint32_t last = 0;
    memcpy(&last, from + inputs / 4 * 4, inputs % 4);
    for (size_t i = 0; i < words; i++, from += 4, to += 2) {
        neutron_widen_word_dsp(to, i < inputs / 4 ? neutron_load_word(from) : last);
        if (i >= inputs / 4) last = 0;
    }
}

static inline int32_t rescaled(int32_t x, int32_t multiplier, int32_t word) {
#if NEUTRON_FAST_DSP
    const int32_t shift = (int8_t)word, fraction = (int32_t)((uint32_t)word >> 8 << 12);
    if (neutron_dsp_scale_fits(multiplier, shift)) {
        return neutron_dsp_rounded_once(x, neutron_dsp_scale(multiplier + (fraction < 0), shift, 0), fraction);
    }
#endif
    return neutron_rounded_once(x, neutron_sound_multiplier(multiplier), word);
}

void conv_2d_1x1_s8_run_vector(const NeutronKernelCall *call) {
    const NeutronConv2d1x1S8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *output = &call->buffers[p->output];
    const size_t blocks = neutron_blocks_of(p->group_inputs);
    const uint8_t *const inputs = neutron_element_address(call->bases, &call->buffers[p->input], 0, 0, 0, 0);
    uint8_t *out = neutron_element_address(call->bases, output, 0, 0, 0, w->channel0);
    const size_t held = (size_t)(w->channel0 - p->constant_channel0) / NEUTRON_LANES;
    const int8_t *weights = neutron_packed_weights(call, p) + held * blocks * BLOCK_BYTES;
    const NeutronRequantBlock *table = neutron_requant_blocks(call, p) + held;
    uint32_t widened[4 * BLOCKS], sums[CHANNELS];
    for (int32_t channel = w->channel0, end; channel < w->channel1; channel = end) {
        end = w->channel1 - channel < CHANNELS ? w->channel1 : channel + CHANNELS;
        for (size_t first = 0, count; first < blocks; first += count) {
            const int8_t *from = weights + first * BLOCK_BYTES;
            count = blocks - first < BLOCKS ? blocks - first : BLOCKS;
            if (blocks > BLOCKS || channel == w->channel0) {
                const size_t done = first * NEUTRON_LANES;
                widen(widened, inputs + done, (size_t)p->group_inputs - done, 2 * count);
            }
            const NeutronRequantBlock *own = table;
            for (int32_t k = channel; k < end; k += NEUTRON_LANES, own++, from += blocks * BLOCK_BYTES) {
                uint32_t *const sum = sums + (k - channel);
                if (first == 0) memcpy(sum, own->bias, sizeof own->bias);
                for (int32_t i = 0; i < NEUTRON_LANES; i += FOUR) {
                    neutron_multiply_one_dsp(sum + i, widened, widened + 4 * count, from + i * NEUTRON_LANES);
                }
            }
        }
        for (int32_t k = channel; k < end; k++, out += output->channel_pitch) {
            const int32_t lane = (k - channel) % NEUTRON_LANES;
            const int32_t x = rescaled((int32_t)sums[k - channel], table->multiplier[lane], table->shift[lane]);
            *out = (uint8_t)neutron_bound(__qadd(x, p->output_zero_point), p->clamp_min, p->clamp_max);
            if (lane == NEUTRON_LANES - 1) table++;
        }
        weights += CHANNELS / NEUTRON_LANES * blocks * BLOCK_BYTES;
    }
}

#endif
