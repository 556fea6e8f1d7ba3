/* SPDX-License-Identifier: BSD-3-Clause */
/* The work of a kernel call, in input elements that its kernel reads: the bound of a run's length, and the least that threads share. */
#ifndef NEUTRON_WORK_H
#define NEUTRON_WORK_H

#include "driver.h"

/* a * b, or NEUTRON_MAX_WORK + 1 where that is less; a is at most that, and b at most 2^31. One copy of it for seven uses. */
__attribute__((noinline)) static uint64_t neutron_bounded_product(uint64_t a, uint32_t b) {
    if ((a >> 8) * b > NEUTRON_MAX_WORK) return NEUTRON_MAX_WORK + 1; /* keeps a * b below 2^49 */
    const uint64_t product = a * b;
    return product > NEUTRON_MAX_WORK ? NEUTRON_MAX_WORK + 1 : product;
}

static inline uint32_t neutron_extent(int32_t first, int32_t end) { return (uint32_t)(end - first); }

static inline uint64_t neutron_call_work(const NeutronProgramView *view, const NeutronKernel *kernel, const uint32_t *params,
                          const NeutronWindowExtents *window) {
    uint64_t work = neutron_bounded_product(neutron_extent(window->batch0, window->batch1), neutron_extent(window->row0, window->row1));
    work = neutron_bounded_product(work, neutron_extent(window->col0, window->col1));
    work = neutron_bounded_product(work, neutron_extent(window->channel0, window->channel1));
    /* Words from 31 on have no bit. */
    for (uint32_t i = 0; i < 31; ++i) {
        if ((kernel->taps_words >> i & 1u) != 0 && (int32_t)params[i] > 0) work = neutron_bounded_product(work, params[i]);
    }
    if ((kernel->taps_words & NEUTRON_TAPS_INPUT_PLANE) != 0) {
        const NeutronBuffer *input = &view->buffers[params[0]];
        work = neutron_bounded_product(work, (uint32_t)input->rows);
        work = neutron_bounded_product(work, (uint32_t)input->cols);
    }
    return work;
}

#endif
