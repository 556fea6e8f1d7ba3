/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_1x1_s8 with an output zero point for each block of output channels: several linear layers of one input. */
#include "kernel.h"

static const int8_t *zero_points_of(const NeutronKernelCall *call, const NeutronConv2d1x1PartsS8 *p) {
    return (const int8_t *)(neutron_base_address(call->bases, p->zero_points_base) + p->zero_points_offset);
}

bool conv_2d_1x1_parts_s8_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) {
    const NeutronConv2d1x1PartsS8 *p = params;
    if (!conv_2d_1x1_s8_check(program, params, window)) return false;
    const uint64_t blocks = ((uint64_t)p->constant_channels + NEUTRON_LANES - 1) / NEUTRON_LANES;
    return neutron_range_is_sound(program, p->zero_points_base, p->zero_points_offset, blocks, 1);
}

void conv_2d_1x1_parts_s8_run(const NeutronKernelCall *call) {
    const NeutronConv2d1x1PartsS8 *p = call->params;
    const int8_t *zero_points = zero_points_of(call, p);
    NeutronConv2d1x1PartsS8 own = *p;
    NeutronKernelCall part = *call;
    part.params = &own; /* the words of conv_2d_1x1_s8 are the first ones */
    const int32_t end = call->window.channel1;
    for (int32_t k = call->window.channel0; k < end; k = part.window.channel1) {
        own.output_zero_point = zero_points[(k - p->constant_channel0) / NEUTRON_LANES];
        int32_t next = k + NEUTRON_LANES;
        while (next < end && zero_points[(next - p->constant_channel0) / NEUTRON_LANES] == own.output_zero_point) {
            next += NEUTRON_LANES;
        }
        part.window.channel0 = k;
        part.window.channel1 = next < end ? next : end;
        conv_2d_1x1_s8_run(&part);
    }
}
