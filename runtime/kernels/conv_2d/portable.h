/* SPDX-License-Identifier: BSD-3-Clause */
/* The portable convolutions' way through a window: 8 output channels of one output element at a time. */
#ifndef NEUTRON_CONVOLUTION_PORTABLE_H
#define NEUTRON_CONVOLUTION_PORTABLE_H

#include "convolution.h"

/* An output element, by the input element of its tap (0, 0), which may lie outside. */
typedef struct {
    const NeutronKernelCall *call;
    const NeutronConv2dS8 *p;
    const NeutronBuffer *input;
    int32_t n, row, col;
} NeutronTapPosition;

/* Computes and stores `count` output channels from `channel` on, a multiple of 8. `weights` and `table` are theirs. */
typedef void (*NeutronComputeBlock)(const NeutronTapPosition *at, int32_t channel, int32_t count, const int8_t *weights,
                                    const NeutronRequantBlock *table, uint8_t *out, int32_t out_pitch);

/* compute() for the whole window. block_bytes: packed weights of 8 output channels. */
static NEUTRON_INLINE void neutron_compute_blocks(const NeutronKernelCall *call, size_t block_bytes,
                                                  NeutronComputeBlock compute) {
    const NeutronConv2dS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *output = &call->buffers[p->output];
    const int32_t first_block = (w->channel0 - p->constant_channel0) / NEUTRON_LANES;
    const int8_t *const weights = neutron_packed_weights(call, p) + (size_t)first_block * block_bytes;
    const NeutronRequantBlock *const table = neutron_requant_blocks(call, p) + first_block;
    NeutronTapPosition at = {.call = call, .p = p, .input = &call->buffers[p->input]};
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        at.n = n;
        at.row = r * p->stride_h - p->pad_top;
        for (int32_t c = w->col0; c < w->col1; c++) {
            at.col = c * p->stride_w - p->pad_left;
            uint8_t *out = neutron_element_address(call->bases, output, n, r, c, w->channel0);
            const int8_t *block = weights;
            const NeutronRequantBlock *entry = table;
            for (int32_t k = w->channel0; k < w->channel1; k += NEUTRON_LANES) {
                const int32_t count = w->channel1 - k < NEUTRON_LANES ? w->channel1 - k : NEUTRON_LANES;
                compute(&at, k, count, block, entry++, out, output->channel_pitch);
                block += block_bytes;
                out += (ptrdiff_t)NEUTRON_LANES * output->channel_pitch;
            }
        }
    }
}

#endif
