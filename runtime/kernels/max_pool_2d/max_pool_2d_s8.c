/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_integer_ops::MaxPool (integer_ops/pooling.h). */
#include "pool.h"

bool max_pool_2d_s8_check(const NeutronProgramView *program, const void *params_block,
                          const NeutronWindowExtents *window) {
    return neutron_pool_is_sound(program, params_block, window, true);
}

/* Not inlined: gcc would keep the largest values in memory. */
static __attribute__((noinline)) void max(const NeutronPool *pool, const NeutronPoolPoint *point) {
    const NeutronMaxPool2dS8 *p = pool->params;
    neutron_largest(pool, point, p->clamp_min, p->clamp_max, 0);
}

#if NEUTRON_VECTORS
NEUTRON_VECTOR static void max_vector(const NeutronPool *pool, const NeutronPoolPoint *point) {
    const NeutronMaxPool2dS8 *p = pool->params;
    neutron_largest_vector(pool, point, p->clamp_min, p->clamp_max, 0);
}
#endif

NEUTRON_SMALL_RUN void max_pool_2d_s8_run(const NeutronKernelCall *call) { neutron_for_each_point(call, max, NEUTRON_FASTEST(max)); }
