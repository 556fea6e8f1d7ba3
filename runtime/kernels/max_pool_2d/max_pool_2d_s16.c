/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_integer_ops::MaxPool of int16 (integer_ops/pooling.h). */
#include "pool.h"

bool max_pool_2d_s16_check(const NeutronProgramView *program, const void *params_block,
                           const NeutronWindowExtents *window) {
    return neutron_pool_16_is_sound(program, params_block, window, true);
}

static NEUTRON_INLINE void finish(const NeutronPool *pool, const NeutronPoolPoint *point, const int32_t *largest,
                                  int16_t *stored, int32_t size) {
    const NeutronMaxPool2dS16 *p = pool->params;
    (void)point;
    for (int32_t i = 0; i < size; i++) stored[i] = (int16_t)neutron_bound(largest[i], p->clamp_min, p->clamp_max);
}

NEUTRON_DEFINE_POINT_16(max_point, INT16_MIN, neutron_largest_taps, finish)

void max_pool_2d_s16_run(const NeutronKernelCall *call) {
    neutron_for_each_point(call, NEUTRON_FASTEST(max_point), NEUTRON_FASTEST(max_point));
}
