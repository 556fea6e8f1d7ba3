/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's REDUCE_MAX and REDUCE_MIN (reference/reduce.h), on stored values. */
#include "pool.h"

bool reduce_max_s8_check(const NeutronProgramView *program, const void *params_block,
                         const NeutronWindowExtents *window) {
    const NeutronReduceMaxS8 *p = params_block;
    return (p->smaller == 0 || p->smaller == 1) && neutron_plane_is_sound(program, p->input, p->output, window);
}

/* The smallest value is the largest of those whose bits are all turned. */
static NEUTRON_INLINE void max(const NeutronPool *pool, const NeutronPoolPoint *point) {
    const NeutronReduceMaxS8 *p = pool->params;
    neutron_largest(pool, point, INT8_MIN, INT8_MAX, -p->smaller);
}

#if NEUTRON_VECTORS
NEUTRON_VECTOR static void max_vector(const NeutronPool *pool, const NeutronPoolPoint *point) {
    const NeutronReduceMaxS8 *p = pool->params;
    neutron_largest_vector(pool, point, INT8_MIN, INT8_MAX, -p->smaller);
}
#endif

void reduce_max_s8_run(const NeutronKernelCall *call) {
    const NeutronReduceMaxS8 *p = call->params;
    neutron_for_each_plane(call, p->input, p->output, max, NEUTRON_FASTEST(max));
}
