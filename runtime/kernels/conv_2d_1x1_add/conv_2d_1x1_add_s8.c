/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_1x1_s8, then add_s8 on its output in place. */
#include "conv_2d_1x1/then.h"

static NeutronAddS8 second_of(const NeutronConv2d1x1AddS8 *p) {
    NeutronAddS8 second = {.input_a = p->output, .input_b = p->then_input_b, .output = p->output};
    NEUTRON_THEN_WORDS(second, a_zero_point, p, then_a_zero_point);
    return second;
}

bool conv_2d_1x1_add_s8_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) {
    const NeutronAddS8 second = second_of(params);
    return conv_2d_1x1_s8_check(program, params, window) && add_s8_check(program, &second, window);
}

void conv_2d_1x1_add_s8_run(const NeutronKernelCall *call) {
    const NeutronAddS8 second = second_of(call->params);
    neutron_conv_2d_1x1_then(call, add_s8_run, &second);
}
