/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_integer_ops::ConvPerChannel (integer_ops/conv.h) with a kernel of one point, and FullyConnected and
 * FullyConnectedPerChannel (integer_ops/fully_connected.h) with a column for each input vector. */
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

#if !NEUTRON_DSP

void conv_2d_1x1_s8_run_portable(const NeutronKernelCall *call) {
    const NeutronConv2d1x1S8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *input = &call->buffers[p->input], *output = &call->buffers[p->output];
    const size_t block_bytes = neutron_blocks_of(p->group_inputs) * NEUTRON_LANES * NEUTRON_LANES;
    const int32_t first_block = (w->channel0 - p->constant_channel0) / NEUTRON_LANES;
    const int8_t *const weights = neutron_packed_weights(call, p) + (size_t)first_block * block_bytes;
    const NeutronRequantBlock *const table = neutron_requant_blocks(call, p) + first_block;
    for (int32_t n = w->batch0; n < w->batch1; n++) {
        for (int32_t r = w->row0; r < w->row1; r++) {
            for (int32_t c = w->col0; c < w->col1; c++) {
                const uint8_t *pixel =
                    neutron_element_address(call->bases, input, n, r * p->stride_h, c * p->stride_w, 0);
                uint8_t *out = neutron_element_address(call->bases, output, n, r, c, w->channel0);
                const int8_t *block = weights;
                const NeutronRequantBlock *entry = table;
                for (int32_t k = w->channel0; k < w->channel1; k += NEUTRON_LANES, entry++) {
                    const int32_t count = w->channel1 - k < NEUTRON_LANES ? w->channel1 - k : NEUTRON_LANES;
                    uint32_t accumulators[NEUTRON_LANES];
                    for (int32_t i = 0; i < NEUTRON_LANES; i++) accumulators[i] = (uint32_t)entry->bias[i];
                    NeutronSums sums = {0};
                    neutron_multiply_pixel(&sums, block, pixel, input->channel_pitch, p->group_inputs);
                    neutron_add_sums(accumulators, &sums);
                    neutron_store_accumulators(p, entry, accumulators, out, output->channel_pitch, count);
                    block += block_bytes;
                    out += (ptrdiff_t)NEUTRON_LANES * output->channel_pitch;
                }
            }
        }
    }
}

void conv_2d_1x1_s8_run(const NeutronKernelCall *call) {
#if NEUTRON_X86_VARIANTS
    if (neutron_has_avx512vnni() && conv_2d_1x1_s8_run_avx512vnni(call)) return;
    if (neutron_has_avx2() && conv_2d_1x1_s8_run_avx2(call)) return;
#endif
    conv_2d_1x1_s8_run_portable(call);
}

/* A vector is one pixel of the loops above. */
void conv_2d_1x1_s8_run_vector(const NeutronKernelCall *call) { conv_2d_1x1_s8_run(call); }

#endif
