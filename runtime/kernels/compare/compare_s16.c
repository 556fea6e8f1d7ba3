/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's comparisons of int16 tensors: of rescaled values (ComparisonWithScaling of reference/comparisons.h), or of stored
 * values, for which both factors are 1/2. */
#include "two_operands_16.h"

/* LiteRT shifts both operands left by so many bits before it rescales them. */
enum { LEFT_SHIFT = 8 };

static bool scale_is_sound(int32_t multiplier, int32_t shift) { return multiplier >= 0 && shift >= -31 && shift <= 0; }

bool compare_s16_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronCompareS16 *p = params_block;
    return neutron_window_elements(program, p->input_a, false, window, 2) != NULL &&
           neutron_window_elements(program, p->input_b, false, window, 2) != NULL &&
           neutron_window_elements(program, p->output, true, window, 1) != NULL &&
           p->relation >= 0 && p->relation <= 5 &&
           scale_is_sound(p->a_multiplier, p->a_shift) && scale_is_sound(p->b_multiplier, p->b_shift);
}

typedef struct {
    NeutronFactor a, b;
} Numbers;

static NEUTRON_INLINE int32_t scaled(int16_t stored, const NeutronFactor *by) {
    return neutron_times(stored * (1 << LEFT_SHIFT), by);
}

#define RELATION(name, relation)                             \
    NEUTRON_RELATION_BLOCK(name, relation, int16_t, int16_t) \
    NEUTRON_ROWS_OF_BLOCKS_OF(name, 2, 1)

RELATION(equal, ==)
RELATION(not_equal, !=)
RELATION(less, <)
RELATION(less_equal, <=)

static NeutronTwoOperandRun run_of(int32_t relation) {
    switch (relation) {
        case 0: return NEUTRON_FASTEST(equal_row);
        case 1: return NEUTRON_FASTEST(not_equal_row);
        case 2: case 4: return NEUTRON_FASTEST(less_row);
        default: return NEUTRON_FASTEST(less_equal_row);
    }
}

void compare_s16_run(const NeutronKernelCall *call) {
    const NeutronCompareS16 *p = call->params;
    Numbers numbers = {neutron_factor(p->a_multiplier, p->a_shift), neutron_factor(p->b_multiplier, p->b_shift)};
    uint32_t a = p->input_a, b = p->input_b;
    if (p->relation >= 4) { /* greater: b is less than a */
        const NeutronFactor of_a = numbers.a;
        numbers = (Numbers){numbers.b, of_a};
        a = p->input_b;
        b = p->input_a;
    }
    neutron_for_each_row(call, a, b, p->output, &numbers, run_of(p->relation));
}
