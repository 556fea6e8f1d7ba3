/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_ops::BatchMatMul for int8 (reference/batch_matmul.h). */
#include "dsp.h"
#include "elements.h"

/* As many products of two differences of stored values fit 32 bits. */
enum { MOST_DEPTH = 1 << 15 };

bool batch_matmul_s8_check(const NeutronProgramView *program, const void *params_block,
                           const NeutronWindowExtents *window) {
    const NeutronBatchMatmulS8 *p = params_block;
    const NeutronBuffer *a = neutron_checked_buffer(program, p->input_a, false);
    const NeutronBuffer *b = neutron_checked_buffer(program, p->input_b, false);
    const NeutronBuffer *out = neutron_window_buffer(program, p->output, true, window);
    if (a == NULL || b == NULL || out == NULL || out->cols != 1) return false;
    if (window->batch1 > a->batches || window->batch1 > b->batches || window->row1 > a->rows) return false;
    return p->depth >= 1 && p->depth <= MOST_DEPTH && p->depth <= b->rows &&
           neutron_buffer_holds(a, 0, 1, 0, p->depth) &&
           neutron_buffer_holds(b, 0, 1, window->channel0, window->channel1) && neutron_is_stored(p->a_zero_point) &&
           neutron_is_stored(p->b_zero_point) && neutron_shift_is_sound(p->output_shift) &&
           neutron_is_stored(p->output_zero_point);
}

#if !NEUTRON_DSP

/* Channels of one row from `done` on, by blocks of this size. */
static NEUTRON_INLINE int32_t product_blocks(const NeutronKernelCall *call, int32_t n, int32_t r, int32_t done,
                                             const int32_t size) {
    const NeutronBatchMatmulS8 *p = call->params;
    const NeutronBuffer *a = &call->buffers[p->input_a], *b = &call->buffers[p->input_b];
    const NeutronBuffer *out = &call->buffers[p->output];
    const int32_t channels = call->window.channel1 - call->window.channel0;
    const int32_t low = INT8_MIN - p->output_zero_point, high = INT8_MAX - p->output_zero_point;
    for (; done <= channels - size; done += size) {
        const int32_t channel = call->window.channel0 + done;
        const uint8_t *left = neutron_element_address(call->bases, a, n, r, 0, 0);
        int32_t sums[NEUTRON_BLOCK] = {0};
        int8_t block[NEUTRON_BLOCK];
        for (int32_t k = 0; k < p->depth; k++) {
            const int32_t factor = (int8_t)left[(ptrdiff_t)k * a->channel_pitch] - p->a_zero_point;
            neutron_load_block(block, neutron_element_address(call->bases, b, n, k, 0, channel), b->channel_pitch, size);
            for (int32_t i = 0; i < size; i++) sums[i] += factor * (block[i] - p->b_zero_point);
        }
        for (int32_t i = 0; i < size; i++) {
            const int32_t rescaled = neutron_requantize(sums[i], p->output_multiplier, p->output_shift);
            block[i] = (int8_t)(neutron_bound(rescaled, low, high) + p->output_zero_point);
        }
        neutron_store_block(neutron_element_address(call->bases, out, n, r, 0, channel), out->channel_pitch, block, size);
    }
    return done;
}

static void product_row(const NeutronKernelCall *call, int32_t n, int32_t r) {
    const int32_t done = NEUTRON_BLOCK > 1 ? product_blocks(call, n, r, 0, NEUTRON_BLOCK) : 0;
    product_blocks(call, n, r, done, 1);
}

#ifdef NEUTRON_AVX2
NEUTRON_AVX2 static void product_row_avx2(const NeutronKernelCall *call, int32_t n, int32_t r) {
    const int32_t done = product_blocks(call, n, r, 0, NEUTRON_BLOCK);
    product_blocks(call, n, r, done, 1);
}
#endif

void batch_matmul_s8_run(const NeutronKernelCall *call) {
    void (*run)(const NeutronKernelCall *call, int32_t n, int32_t r) = product_row;
#ifdef NEUTRON_AVX2
    if (neutron_has_avx2()) run = product_row_avx2;
#endif
    const NeutronWindowExtents *w = &call->window;
    if (w->col0 >= w->col1) return;
    for (int32_t n = w->batch0; n < w->batch1; n++) {
        for (int32_t r = w->row0; r < w->row1; r++) run(call, n, r);
    }
}

#endif
