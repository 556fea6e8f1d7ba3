/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_ops::QuantizedMeanOrSum of int16 (reduce.h); the division by the number of elements is in the multiplier. */
#include "pool.h"

bool mean_s16_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronMeanS16 *p = params_block;
    if (!neutron_plane_16_is_sound(program, p->input, p->output, window)) return false;
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    return (int64_t)in->rows * in->cols <= NEUTRON_MOST_ADDED_16 && neutron_shift_is_sound(p->output_shift) &&
           neutron_bounds_are_sound_16(p->clamp_min, p->clamp_max);
}

static NEUTRON_INLINE void finish(const NeutronPool *pool, const NeutronPoolPoint *point, const int32_t *sums,
                                  int16_t *stored, int32_t size) {
    const NeutronMeanS16 *p = pool->params;
    (void)point;
    for (int32_t i = 0; i < size; i++) {
        const int32_t rescaled = neutron_requantize(sums[i], p->output_multiplier, p->output_shift);
        stored[i] = (int16_t)neutron_bound(rescaled, p->clamp_min, p->clamp_max);
    }
}

NEUTRON_DEFINE_POINT_16(mean_point, 0, neutron_add_taps, finish)

void mean_s16_run(const NeutronKernelCall *call) {
    const NeutronMeanS16 *p = call->params;
    neutron_for_each_plane(call, p->input, p->output, NEUTRON_FASTEST(mean_point), NEUTRON_FASTEST(mean_point));
}
