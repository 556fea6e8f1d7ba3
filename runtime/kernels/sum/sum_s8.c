/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's optimized SUM of int8; the sum of the zero points is in the bias. */
#include "pool.h"
#include "sum/single.h"

bool sum_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronSumS8 *p = params_block;
    if (!neutron_plane_is_sound(program, p->input, p->output, window)) return false;
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    return (int64_t)in->rows * in->cols <= 1 << 23 && neutron_singles_are_sound(p->scale, p->bias) &&
           neutron_is_stored(p->output_zero_point);
}

static NEUTRON_INLINE int32_t rescaled(const NeutronSumS8 *p, int32_t sum) {
    const int32_t low = INT8_MIN - p->output_zero_point, high = INT8_MAX - p->output_zero_point;
    const NeutronSingle scale = neutron_single_of(p->scale), bias = neutron_single_of(p->bias);
    return neutron_rescaled_sum(sum, scale, bias, low, high) + p->output_zero_point;
}

static NEUTRON_INLINE void finish(const NeutronPool *pool, const NeutronPoolPoint *point, const int32_t *sums,
                                  int16_t *stored, int32_t size) {
    (void)point;
    for (int32_t i = 0; i < size; i++) stored[i] = (int16_t)rescaled(pool->params, sums[i]);
}

static NEUTRON_INLINE void sum(const NeutronPool *pool, const NeutronPoolPoint *point) { neutron_sum(pool, point, finish); }

static NEUTRON_INLINE void sums(const NeutronKernelCall *call) {
    const NeutronSumS8 *p = call->params;
    neutron_for_each_plane(call, p->input, p->output, sum, sum);
}

NEUTRON_FOR_VECTORS(sums, (const NeutronKernelCall *call), (call))

void sum_s8_run(const NeutronKernelCall *call) { NEUTRON_FASTEST(sums)(call); }
