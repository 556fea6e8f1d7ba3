/* SPDX-License-Identifier: BSD-3-Clause */
/* Products of matrices, for both types of activations: what check asks of the operands, and the loop over blocks of channels. */
#ifndef NEUTRON_MATMUL_H
#define NEUTRON_MATMUL_H

#include "elements_16.h"

/* The depth at which the sum of products fits 32 bits for differences of int8 values, and for int16 values the 47 bits that LiteRT
 * rescales. */
enum { MOST_DEPTH = 1 << 15 };

/* `out`: the output, which has the window. */
static inline bool neutron_matmul_is_sound(const NeutronProgramView *program, uint32_t input_a, uint32_t input_b,
                                           const NeutronBuffer *out, int32_t depth, const NeutronWindowExtents *window) {
    const NeutronBuffer *a = neutron_checked_buffer(program, input_a, false);
    const NeutronBuffer *b = neutron_checked_buffer(program, input_b, false);
    if (a == NULL || b == NULL || out == NULL || out->cols != 1) return false;
    if (window->batch1 > a->batches || window->batch1 > b->batches || window->row1 > a->rows) return false;
    return depth >= 1 && depth <= MOST_DEPTH && depth <= b->rows && neutron_buffer_holds(a, 0, 1, 0, depth) &&
           neutron_buffer_holds(b, 0, 1, window->channel0, window->channel1);
}

/* Computes and stores `size` channels of row r from `channel` on. */
typedef void (*NeutronMatmulBlock)(const NeutronKernelCall *call, int32_t n, int32_t r, int32_t channel, int32_t size);

/* matmul() for all rows of the window by block(), and the same for AVX2. */
#define NEUTRON_DEFINE_MATMUL(block)                                                                     \
    static NEUTRON_INLINE void matmul(const NeutronKernelCall *call) { neutron_matmul(call, block); }    \
    NEUTRON_FOR_VECTORS(matmul, (const NeutronKernelCall *call), (call))

static NEUTRON_INLINE void neutron_matmul(const NeutronKernelCall *call, NeutronMatmulBlock block) {
    const NeutronWindowExtents *w = &call->window;
    if (w->col0 >= w->col1) return;
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        int32_t channel = w->channel0;
        for (; NEUTRON_BLOCK > 1 && channel <= w->channel1 - NEUTRON_BLOCK; channel += NEUTRON_BLOCK) {
            block(call, n, r, channel, NEUTRON_BLOCK);
        }
        for (; channel < w->channel1; channel++) block(call, n, r, channel, 1);
    }
}

#endif
