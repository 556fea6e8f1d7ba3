/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's MAXIMUM and MINIMUM on int16 (reference/maximum_minimum.h), on stored values. */
#include "two_operands_16.h"

bool maximum_s16_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronMaximumS16 *p = params_block;
    return (p->smaller == 0 || p->smaller == 1) &&
           neutron_two_operands_16_are_sound(program, p->input_a, p->input_b, p->output, window);
}

static NEUTRON_INLINE void larger_block(const void *numbers, const int16_t *a, const int16_t *b, int16_t *out,
                                        int32_t size) {
    (void)numbers;
    for (int32_t i = 0; i < size; i++) out[i] = a[i] > b[i] ? a[i] : b[i];
}

static NEUTRON_INLINE void smaller_block(const void *numbers, const int16_t *a, const int16_t *b, int16_t *out,
                                         int32_t size) {
    (void)numbers;
    for (int32_t i = 0; i < size; i++) out[i] = a[i] < b[i] ? a[i] : b[i];
}

NEUTRON_ROWS_OF_BLOCKS_16(larger)
NEUTRON_ROWS_OF_BLOCKS_16(smaller)

void maximum_s16_run(const NeutronKernelCall *call) {
    const NeutronMaximumS16 *p = call->params;
    const NeutronTwoOperandRun run = p->smaller ? NEUTRON_FASTEST(smaller_row) : NEUTRON_FASTEST(larger_row);
    neutron_for_each_row(call, p->input_a, p->input_b, p->output, NULL, run);
}
