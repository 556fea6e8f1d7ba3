/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_ops::BatchMatMul for int16 (reference/batch_matmul.h). */
#include "matmul.h"
#include "rescaling_16.h"

bool batch_matmul_s16_check(const NeutronProgramView *program, const void *params_block,
                            const NeutronWindowExtents *window) {
    const NeutronBatchMatmulS16 *p = params_block;
    const NeutronBuffer *out = neutron_window_elements(program, p->output, true, window, 2);
    return neutron_matmul_is_sound(program, p->input_a, p->input_b, out, p->depth, window) &&
           neutron_elements_are_sound(program, &program->buffers[p->input_a], false, 2) &&
           neutron_elements_are_sound(program, &program->buffers[p->input_b], false, 2);
}

static NEUTRON_INLINE void multiply(const NeutronKernelCall *call, int32_t n, int32_t r, int32_t channel,
                                    const int32_t size) {
    const NeutronBatchMatmulS16 *p = call->params;
    const NeutronBuffer *a = &call->buffers[p->input_a], *b = &call->buffers[p->input_b];
    const NeutronBuffer *out = &call->buffers[p->output];
    const uint8_t *left = neutron_element_address(call->bases, a, n, r, 0, 0);
    int64_t sums[NEUTRON_BLOCK] = {0};
    int16_t block[NEUTRON_BLOCK];
    for (int32_t k = 0; k < p->depth; k++) {
        const int32_t factor = neutron_load_16(left + (ptrdiff_t)k * a->channel_pitch);
        neutron_load_block_16(block, neutron_element_address(call->bases, b, n, k, 0, channel), b->channel_pitch, size);
        for (int32_t i = 0; i < size; i++) sums[i] += factor * block[i];
    }
    for (int32_t i = 0; i < size; i++) {
        const int32_t rescaled = neutron_rescaled_64((uint64_t)sums[i], p->output_multiplier, p->output_shift);
        block[i] = (int16_t)neutron_bound(rescaled, INT16_MIN, INT16_MAX);
    }
    neutron_store_block_16(neutron_element_address(call->bases, out, n, r, 0, channel), out->channel_pitch, block, size);
}

NEUTRON_DEFINE_MATMUL(multiply)

void batch_matmul_s16_run(const NeutronKernelCall *call) { NEUTRON_FASTEST(matmul)(call); }
