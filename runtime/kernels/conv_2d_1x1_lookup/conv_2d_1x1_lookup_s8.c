/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_1x1_s8, then lookup_s8 on its output in place. */
#include "conv_2d_1x1/then.h"

static NeutronLookupS8 second_of(const NeutronConv2d1x1LookupS8 *p) {
    NeutronLookupS8 second = {.input = p->output, .output = p->output};
    NEUTRON_THEN_WORDS(second, table_base, p, then_table_base);
    return second;
}

bool conv_2d_1x1_lookup_s8_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) {
    const NeutronLookupS8 second = second_of(params);
    return conv_2d_1x1_s8_check(program, params, window) && lookup_s8_check(program, &second, window);
}

void conv_2d_1x1_lookup_s8_run(const NeutronKernelCall *call) {
    const NeutronLookupS8 second = second_of(call->params);
    neutron_conv_2d_1x1_then(call, lookup_s8_run, &second);
}
