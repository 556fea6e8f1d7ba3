/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_integer_ops::ConvPerChannel (integer_ops/conv.h) with a kernel of one point, and FullyConnected and
 * FullyConnectedPerChannel (integer_ops/fully_connected.h) with a column for each input vector. */
#include "conv_2d/convolution_dsp.h"
#include "conv_2d/convolution.h"

bool conv_2d_1x1_s8_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) {
    const NeutronConv2d1x1S8 *p = params;
    if (p->kernel_h != 1 || p->kernel_w != 1 || p->pad_top != 0 || p->pad_left != 0 || p->group_inputs < 1) return false;
    const uint64_t block_bytes = (uint64_t)neutron_blocks_of(p->group_inputs) * NEUTRON_LANES * NEUTRON_LANES;
    if (!neutron_convolution_is_sound(program, p, window, block_bytes)) return false;
    /* One group, and without padding every output has its input. */
    const NeutronBuffer *input = neutron_checked_buffer(program, p->input, false);
    return p->group_inputs == input->channels && (int64_t)(window->row1 - 1) * p->stride_h < input->rows &&
           (int64_t)(window->col1 - 1) * p->stride_w < input->cols;
}

#if NEUTRON_DSP && !NEUTRON_HELIUM

/* One tap, and no padding. */
static void fill(const NeutronLayerDsp *layer, const NeutronPixelDsp *pixel, const NeutronPartDsp *part, uint32_t *to,
                 size_t pitch) {
    const NeutronConv2d1x1S8 *p = layer->call->params;
    const NeutronBuffer *input = &layer->call->buffers[p->input];
    const int32_t channel = (int32_t)part->first * NEUTRON_LANES;
    const uint8_t *const from = neutron_place_dsp(layer->input, input, pixel->n, pixel->row, pixel->col);
    neutron_widen_dsp(to, pitch, from + channel * input->channel_pitch, input->channel_pitch, p->group_inputs - channel,
                      2 * part->count);
}

void conv_2d_1x1_s8_run(const NeutronKernelCall *call) {
    const NeutronConv2d1x1S8 *p = call->params;
    NeutronLayerDsp layer = {
        .call = call,
        .fill = fill,
        .blocks = (uint32_t)neutron_blocks_of(p->group_inputs),
        .words = 2,
    };
    neutron_convolution_dsp(&layer);
}

#elif !NEUTRON_HELIUM

static void compute_block(const NeutronTapPosition *at, int32_t channel, int32_t count, const int8_t *weights,
                          const void *constants, uint8_t *out, int32_t out_pitch) {
    const NeutronConv2d1x1S8 *p = at->p;
    const NeutronRequantBlock *table = constants;
    (void)channel; /* there is one group */
    const uint8_t *pixel = neutron_element_address(at->call->bases, at->input, at->n, at->row, at->col, 0);
    uint32_t accumulators[NEUTRON_LANES];
    for (int32_t k = 0; k < NEUTRON_LANES; k++) accumulators[k] = (uint32_t)table->bias[k];
    NeutronSums sums = {0};
    neutron_multiply_pixel(&sums, weights, pixel, at->input->channel_pitch, p->group_inputs);
    neutron_add_sums(accumulators, &sums);
    neutron_store_accumulators(p, table, accumulators, out, out_pitch, count);
}

void conv_2d_1x1_s8_run_portable(const NeutronKernelCall *call) {
    const NeutronConv2d1x1S8 *p = call->params;
    neutron_compute_blocks(call, neutron_blocks_of(p->group_inputs) * NEUTRON_LANES * NEUTRON_LANES,
                           sizeof(NeutronRequantBlock), compute_block);
}

void conv_2d_1x1_s8_run(const NeutronKernelCall *call) {
#if NEUTRON_X86_VARIANTS
    if (neutron_has_vectors() && conv_2d_1x1_s8_run_avx2(call)) return;
#elif NEUTRON_NEON_VARIANTS
    if (conv_2d_1x1_s8_run_neon(call)) return;
#endif
    conv_2d_1x1_s8_run_portable(call);
}

/* A vector is one pixel of the loops above. */
void conv_2d_1x1_s8_run_vector(const NeutronKernelCall *call) { conv_2d_1x1_s8_run(call); }

#endif
