/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's REDUCE_MAX and REDUCE_MIN (reference/reduce.h), on stored values. */
#include "elements.h"
#include "elements_dsp.h"

bool reduce_max_s8_check(const NeutronProgramView *program, const void *params_block,
                         const NeutronWindowExtents *window) {
    const NeutronReduceMaxS8 *p = params_block;
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    const NeutronBuffer *out = neutron_window_buffer(program, p->output, true, window);
    if (in == NULL || out == NULL || out->rows != 1 || out->cols != 1 || window->batch1 > in->batches) return false;
    return (p->smaller == 0 || p->smaller == 1) &&
           neutron_buffer_holds(in, 0, in->cols, window->channel0, window->channel1);
}

#if NEUTRON_DSP

void reduce_max_s8_run(const NeutronKernelCall *call) {
    const NeutronReduceMaxS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    /* The smallest value is the largest of those whose bits are all turned. */
    const uint32_t turned = p->smaller ? UINT32_MAX : 0;
    for (int32_t n = w->batch0; n < w->batch1; n++) {
        const uint8_t *plane = neutron_element_address(call->bases, in, n, 0, 0, w->channel0);
        uint8_t *to = neutron_element_address(call->bases, out, n, 0, 0, w->channel0);
        for (int32_t left = w->channel1 - w->channel0; left > 0; left -= 4) {
            const bool whole = left >= 4 && in->channel_pitch == 1;
            uint32_t largest = neutron_four_bytes(INT8_MIN);
            for (int32_t r = 0; r < in->rows; r++) {
                const uint8_t *from = plane + (ptrdiff_t)(r % in->ring) * in->row_pitch;
                for (int32_t c = 0; c < in->cols; c++, from += in->col_pitch) {
                    const uint32_t word = whole ? neutron_load_word(from) : neutron_load_some_dsp(from, in->channel_pitch, left);
                    largest = neutron_max_bytes(largest, word ^ turned);
                }
            }
            neutron_store_some_dsp(to, out->channel_pitch, largest ^ turned, left);
            plane += 4 * (ptrdiff_t)in->channel_pitch;
            to += 4 * (ptrdiff_t)out->channel_pitch;
        }
    }
}

#else

/* Channels of one batch from `done` on, by blocks of this size. The smallest value is the largest of those whose bits
 * are all turned. */
static NEUTRON_INLINE int32_t max_blocks(const NeutronKernelCall *call, int32_t n, int32_t done, const int32_t size) {
    const NeutronReduceMaxS8 *p = call->params;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const int32_t channels = call->window.channel1 - call->window.channel0;
    const int8_t turned = p->smaller ? -1 : 0;
    for (; done <= channels - size; done += size) {
        const int32_t channel = call->window.channel0 + done;
        int8_t largest[NEUTRON_BLOCK], block[NEUTRON_BLOCK];
        for (int32_t i = 0; i < size; i++) largest[i] = INT8_MIN;
        for (int32_t r = 0; r < in->rows; r++) {
            const uint8_t *from = neutron_element_address(call->bases, in, n, r, 0, channel);
            for (int32_t c = 0; c < in->cols; c++) {
                neutron_load_block(block, from, in->channel_pitch, size);
                for (int32_t i = 0; i < size; i++) {
                    const int8_t value = (int8_t)(block[i] ^ turned);
                    largest[i] = value > largest[i] ? value : largest[i];
                }
                from += in->col_pitch;
            }
        }
        for (int32_t i = 0; i < size; i++) largest[i] = (int8_t)(largest[i] ^ turned);
        neutron_store_block(neutron_element_address(call->bases, out, n, 0, 0, channel), out->channel_pitch, largest,
                            size);
    }
    return done;
}

static NEUTRON_INLINE void max_batch(const NeutronKernelCall *call, int32_t n) {
    const int32_t done = NEUTRON_BLOCK > 1 ? max_blocks(call, n, 0, NEUTRON_BLOCK) : 0;
    max_blocks(call, n, done, 1);
}

#ifdef NEUTRON_AVX2
NEUTRON_AVX2 static void max_batch_avx2(const NeutronKernelCall *call, int32_t n) { max_batch(call, n); }
#endif

void reduce_max_s8_run(const NeutronKernelCall *call) {
    void (*run)(const NeutronKernelCall *call, int32_t n) = max_batch;
#ifdef NEUTRON_AVX2
    if (neutron_has_avx2()) run = max_batch_avx2;
#endif
    for (int32_t n = call->window.batch0; n < call->window.batch1; n++) run(call, n);
}

#endif
