/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_integer_ops::DepthwiseConvPerChannel (integer_ops/depthwise_conv.h). */
#include "conv_2d/convolution.h"

bool depthwise_conv_2d_s8_check(const NeutronProgramView *program, const void *params,
                                const NeutronWindowExtents *window) {
    const NeutronDepthwiseConv2dS8 *p = params;
    return p->group_inputs == 1 && neutron_convolution_is_sound(program, p, window, NEUTRON_LANES);
}

#if !NEUTRON_DSP || NEUTRON_HELIUM

/* A block of 8 output channels, whose inputs are one pitch apart, or at the places in input_of. */
typedef struct {
    int32_t input_channel0;
    bool apart; /* by input_of */
    int32_t input_of[NEUTRON_LANES];
} Channels;

/* `count` output channels from `channel` on; those past the last take the last's inputs, and are not stored. */
static Channels find_channels(const NeutronDepthwiseConv2dS8 *p, int32_t channel, int32_t count) {
    Channels channels;
    channels.apart = p->group_outputs != 1 || count < NEUTRON_LANES;
    channels.input_channel0 = p->group_outputs != 1 ? channel / p->group_outputs : channel;
    for (int32_t k = 0; k < NEUTRON_LANES && channels.apart; k++) {
        const int32_t last = k < count ? k : count - 1;
        channels.input_of[k] = (channel + last) / p->group_outputs - channels.input_channel0;
    }
    return channels;
}

/* The products of one tap. `pixel`: the block's first input. */
static NEUTRON_INLINE void multiply_tap(uint32_t *accumulators, const int8_t *weights, const uint8_t *pixel,
                                        int32_t pitch, const Channels *channels) {
    int8_t inputs[NEUTRON_LANES];
    if (channels->apart) {
        for (int32_t k = 0; k < NEUTRON_LANES; k++) {
            inputs[k] = (int8_t)pixel[(ptrdiff_t)channels->input_of[k] * pitch];
        }
    } else {
        neutron_load_block(inputs, pixel, pitch, NEUTRON_LANES);
    }
    /* Products of bytes fit 16 bits, and vectors of 16 bits multiply fastest. */
    int16_t products[NEUTRON_LANES];
    for (int32_t k = 0; k < NEUTRON_LANES; k++) products[k] = (int16_t)(weights[k] * inputs[k]);
    for (int32_t k = 0; k < NEUTRON_LANES; k++) {
        const int32_t product = products[k];
        accumulators[k] += (uint32_t)product;
    }
}

/* `count` output channels from `channel` on, a multiple of 8. */
static void compute_block(const NeutronTapPosition *at, int32_t channel, int32_t count, const int8_t *weights,
                          const void *constants, uint8_t *out, int32_t out_pitch) {
    const NeutronDepthwiseConv2dS8 *p = at->p;
    const NeutronRequantBlock *table = constants;
    uint8_t padding[NEUTRON_LANES];
    memset(padding, p->input_zero_point, sizeof padding);
    const Channels channels = find_channels(p, channel, count);
    uint32_t accumulators[NEUTRON_LANES];
    for (int32_t k = 0; k < NEUTRON_LANES; k++) accumulators[k] = (uint32_t)table->bias[k];
    for (int32_t i = 0; i < p->kernel_h; i++) {
        const uint8_t *row = neutron_tap_row(at, i, channels.input_channel0);
        for (int32_t j = 0; j < p->kernel_w; j++, weights += NEUTRON_LANES) {
            const uint8_t *pixel = neutron_tap(at, row, j);
            multiply_tap(accumulators, weights, pixel != NULL ? pixel : padding,
                         pixel != NULL ? at->input->channel_pitch : 0, &channels);
        }
    }
    neutron_store_accumulators(p, table, accumulators, out, out_pitch, count);
}

void depthwise_conv_2d_s8_run_portable(const NeutronKernelCall *call) {
    const NeutronDepthwiseConv2dS8 *p = call->params;
    neutron_compute_blocks(call, (size_t)p->kernel_h * (size_t)p->kernel_w * NEUTRON_LANES,
                           sizeof(NeutronRequantBlock), compute_block);
}

#endif
#if !NEUTRON_DSP

void depthwise_conv_2d_s8_run(const NeutronKernelCall *call) {
#if NEUTRON_X86_VARIANTS
    if (neutron_has_vectors() && depthwise_conv_2d_s8_run_avx2(call)) return;
#elif NEUTRON_NEON_VARIANTS
    if (depthwise_conv_2d_s8_run_neon(call)) return;
#endif
    depthwise_conv_2d_s8_run_portable(call);
}

void depthwise_conv_2d_s8_run_3x3(const NeutronKernelCall *call) { depthwise_conv_2d_s8_run(call); }

#endif
