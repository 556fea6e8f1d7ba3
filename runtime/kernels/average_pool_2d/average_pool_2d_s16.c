/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_integer_ops::AveragePool of int16 (integer_ops/pooling.h). */
#include "pool.h"

bool average_pool_2d_s16_check(const NeutronProgramView *program, const void *params_block,
                               const NeutronWindowExtents *window) {
    const NeutronAveragePool2dS16 *p = params_block;
    return neutron_pool_16_is_sound(program, p, window, false) && p->kernel_h * p->kernel_w <= NEUTRON_MOST_ADDED_16;
}

static NEUTRON_INLINE void finish(const NeutronPool *pool, const NeutronPoolPoint *point, const int32_t *sums,
                                  int16_t *stored, int32_t size) {
    const NeutronAveragePool2dS16 *p = pool->params;
    const int32_t count = point->rows * point->cols, half = count / 2;
    for (int32_t i = 0; i < size; i++) {
        const int32_t nudged = sums[i] > 0 ? sums[i] + half : sums[i] - half;
        stored[i] = (int16_t)neutron_bound(nudged / count, p->clamp_min, p->clamp_max);
    }
}

NEUTRON_DEFINE_POINT_16(average_point, 0, neutron_add_taps, finish)

void average_pool_2d_s16_run(const NeutronKernelCall *call) {
    neutron_for_each_point(call, NEUTRON_FASTEST(average_point), NEUTRON_FASTEST(average_point));
}
