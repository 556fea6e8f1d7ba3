/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's optimized SUM of int16. */
#include "pool.h"
#include "sum/single.h"

bool sum_s16_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronSumS16 *p = params_block;
    if (!neutron_plane_16_is_sound(program, p->input, p->output, window)) return false;
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    return (int64_t)in->rows * in->cols <= NEUTRON_MOST_ADDED_16 && neutron_singles_are_sound(p->scale, 0);
}

static NEUTRON_INLINE void finish(const NeutronPool *pool, const NeutronPoolPoint *point, const int32_t *sums,
                                  int16_t *stored, int32_t size) {
    const NeutronSumS16 *p = pool->params;
    const NeutronSingle scale = neutron_single_of(p->scale), none = {0, 0};
    (void)point;
    for (int32_t i = 0; i < size; i++) {
        stored[i] = (int16_t)neutron_rescaled_sum(sums[i], scale, none, INT16_MIN, INT16_MAX);
    }
}

NEUTRON_DEFINE_POINT_16(sum_point, 0, neutron_add_taps, finish)

void sum_s16_run(const NeutronKernelCall *call) {
    const NeutronSumS16 *p = call->params;
    neutron_for_each_plane(call, p->input, p->output, NEUTRON_FASTEST(sum_point), NEUTRON_FASTEST(sum_point));
}
