/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's MUL on int16 (reference/integer_ops/mul.h: MulElementwise). */
#include "two_operands_16.h"

bool mul_s16_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronMulS16 *p = params_block;
    return neutron_shift_is_sound(p->output_shift) && neutron_bounds_are_sound_16(p->clamp_min, p->clamp_max) &&
           neutron_two_operands_16_are_sound(program, p->input_a, p->input_b, p->output, window);
}

typedef struct {
    int32_t multiplier, shift, low, high;
} Numbers;

static NEUTRON_INLINE void mul_block(const void *numbers, const int16_t *a, const int16_t *b, int16_t *out,
                                     int32_t size) {
    const Numbers *p = numbers;
    for (int32_t i = 0; i < size; i++) {
        out[i] = (int16_t)neutron_bound(neutron_requantize(a[i] * b[i], p->multiplier, p->shift), p->low, p->high);
    }
}

NEUTRON_ROWS_OF_BLOCKS_16(mul)

void mul_s16_run(const NeutronKernelCall *call) {
    const NeutronMulS16 *p = call->params;
    const Numbers numbers = {p->output_multiplier, p->output_shift, p->clamp_min, p->clamp_max};
    neutron_for_each_row(call, p->input_a, p->input_b, p->output, &numbers, NEUTRON_FASTEST(mul_row));
}
