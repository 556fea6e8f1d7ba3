/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_ops::BatchMatMul for int16 (reference/batch_matmul.h). */
#include "rescaling_16.h"

/* As many products fit the 47 bits that LiteRT rescales. */
enum { MOST_DEPTH = 1 << 15 };

bool batch_matmul_s16_check(const NeutronProgramView *program, const void *params_block,
                            const NeutronWindowExtents *window) {
    const NeutronBatchMatmulS16 *p = params_block;
    const NeutronBuffer *a = neutron_checked_buffer(program, p->input_a, false);
    const NeutronBuffer *b = neutron_checked_buffer(program, p->input_b, false);
    const NeutronBuffer *out = neutron_window_elements(program, p->output, true, window, 2);
    if (a == NULL || b == NULL || out == NULL || out->cols != 1) return false;
    if (!neutron_elements_are_sound(program, a, false, 2) || !neutron_elements_are_sound(program, b, false, 2)) return false;
    if (window->batch1 > a->batches || window->batch1 > b->batches || window->row1 > a->rows) return false;
    return p->depth >= 1 && p->depth <= MOST_DEPTH && p->depth <= b->rows &&
           neutron_buffer_holds(a, 0, 1, 0, p->depth) && neutron_buffer_holds(b, 0, 1, window->channel0, window->channel1);
}

/* Channels of one row from `done` on, by blocks of this size. */
static NEUTRON_INLINE int32_t product_blocks(const NeutronKernelCall *call, int32_t n, int32_t r, int32_t done,
                                             const int32_t size) {
    const NeutronBatchMatmulS16 *p = call->params;
    const NeutronBuffer *a = &call->buffers[p->input_a], *b = &call->buffers[p->input_b];
    const NeutronBuffer *out = &call->buffers[p->output];
    const int32_t channels = call->window.channel1 - call->window.channel0;
    for (; done <= channels - size; done += size) {
        const int32_t channel = call->window.channel0 + done;
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
    return done;
}

static NEUTRON_INLINE void product_row(const NeutronKernelCall *call, int32_t n, int32_t r) {
    const int32_t done = NEUTRON_BLOCK > 1 ? product_blocks(call, n, r, 0, NEUTRON_BLOCK) : 0;
    product_blocks(call, n, r, done, 1);
}

NEUTRON_FOR_AVX2(product_row, (const NeutronKernelCall *call, int32_t n, int32_t r), (call, n, r))

void batch_matmul_s16_run(const NeutronKernelCall *call) {
    void (*const run)(const NeutronKernelCall *call, int32_t n, int32_t r) = NEUTRON_FASTEST(product_row);
    const NeutronWindowExtents *w = &call->window;
    if (w->col0 >= w->col1) return;
    NEUTRON_FOR_EACH_ROW(w, n, r) run(call, n, r);
}
