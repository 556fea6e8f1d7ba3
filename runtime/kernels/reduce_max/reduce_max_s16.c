/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's REDUCE_MAX and REDUCE_MIN of int16 (reference/reduce.h), on stored values. */
#include "pool.h"

bool reduce_max_s16_check(const NeutronProgramView *program, const void *params_block,
                          const NeutronWindowExtents *window) {
    const NeutronReduceMaxS16 *p = params_block;
    return (p->smaller == 0 || p->smaller == 1) && neutron_plane_16_is_sound(program, p->input, p->output, window);
}

static NEUTRON_INLINE void finish(const NeutronPool *pool, const NeutronPoolPoint *point, const int32_t *found,
                                  int16_t *stored, int32_t size) {
    (void)pool;
    (void)point;
    for (int32_t i = 0; i < size; i++) stored[i] = (int16_t)found[i];
}

static NEUTRON_INLINE void found_point(const NeutronPool *pool, const NeutronPoolPoint *point) {
    const NeutronReduceMaxS16 *p = pool->params;
    if (p->smaller != 0) {
        neutron_point(pool, point, INT16_MAX, neutron_smallest_taps, finish, 2);
    } else {
        neutron_point(pool, point, INT16_MIN, neutron_largest_taps, finish, 2);
    }
}

NEUTRON_FOR_VECTORS(found_point, (const NeutronPool *pool, const NeutronPoolPoint *point), (pool, point))

void reduce_max_s16_run(const NeutronKernelCall *call) {
    const NeutronReduceMaxS16 *p = call->params;
    neutron_for_each_plane(call, p->input, p->output, NEUTRON_FASTEST(found_point), NEUTRON_FASTEST(found_point));
}
