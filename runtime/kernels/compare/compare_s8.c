/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's comparisons of quantized tensors (ComparisonWithScaling of reference/comparisons.h). */
#include "two_operands.h"

/* LiteRT shifts both operands left by so many bits before it rescales them. */
enum { LEFT_SHIFT = 8 };

static bool scale_is_sound(int32_t zero_point, int32_t multiplier, int32_t shift) {
    return neutron_is_stored(zero_point) && multiplier >= 0 && shift >= -31 && shift <= 0;
}

bool compare_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronCompareS8 *p = params_block;
    return neutron_two_operands_are_sound(program, p->input_a, p->input_b, p->output, window) &&
           p->relation >= 0 && p->relation <= 5 &&
           scale_is_sound(p->a_zero_point, p->a_multiplier, p->a_shift) &&
           scale_is_sound(p->b_zero_point, p->b_multiplier, p->b_shift);
}

typedef struct {
    NeutronOperandScale a, b;
} Numbers;

static NEUTRON_INLINE int32_t scaled(int8_t stored, const NeutronOperandScale *by) {
    return neutron_scaled_difference_1((stored - by->zero_point) * (1 << LEFT_SHIFT), by);
}

static void compare(const NeutronKernelCall *call, NeutronTwoOperandRun row) {
    const NeutronCompareS8 *p = call->params;
    const Numbers numbers = {
        neutron_operand_scale(p->a_zero_point, p->a_multiplier, p->a_shift),
        neutron_operand_scale(p->b_zero_point, p->b_multiplier, p->b_shift),
    };
    neutron_for_each_row(call, p->input_a, p->input_b, p->output, &numbers, row);
}

#define RELATION(name, relation)                                                                           \
    NEUTRON_RELATION_BLOCK(name, relation, int8_t, int8_t)                                                 \
    NEUTRON_ROWS_OF_BLOCKS(name)                                                                           \
    void compare_s8_run_##name(const NeutronKernelCall *call) { compare(call, NEUTRON_FASTEST(name##_row)); }

RELATION(equal, ==)
RELATION(not_equal, !=)
RELATION(less, <)
RELATION(less_equal, <=)
RELATION(greater, >)
RELATION(greater_equal, >=)

void compare_s8_run(const NeutronKernelCall *call) {
    const NeutronCompareS8 *p = call->params;
    switch (p->relation) {
        case 0: compare_s8_run_equal(call); break;
        case 1: compare_s8_run_not_equal(call); break;
        case 2: compare_s8_run_less(call); break;
        case 3: compare_s8_run_less_equal(call); break;
        case 4: compare_s8_run_greater(call); break;
        default: compare_s8_run_greater_equal(call); break;
    }
}
