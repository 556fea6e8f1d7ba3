/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's MAXIMUM and MINIMUM on int16 (reference/maximum_minimum.h), on stored values. */
#include "two_operands_16.h"

bool maximum_s16_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronMaximumS16 *p = params_block;
    return (p->smaller == 0 || p->smaller == 1) &&
           neutron_two_operands_16_are_sound(program, p->input_a, p->input_b, p->output, window);
}

NEUTRON_ROWS_OF_LARGER_AND_SMALLER(int16_t, NEUTRON_ROWS_OF_BLOCKS_16)

void maximum_s16_run(const NeutronKernelCall *call) {
    const NeutronMaximumS16 *p = call->params;
    const NeutronTwoOperandRun run = p->smaller ? NEUTRON_FASTEST(smaller_row) : NEUTRON_FASTEST(larger_row);
    neutron_for_each_row(call, p->input_a, p->input_b, p->output, NULL, run);
}
