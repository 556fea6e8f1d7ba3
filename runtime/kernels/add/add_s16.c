/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's ADD and SUB on int16 with scales of any value (reference/add.h, reference/sub.h: AddElementwise, SubElementwise). */
#include "two_operands_16.h"

/* Bits that both operands are shifted left by. */
enum { LEFT_SHIFT = 15 };

bool add_s16_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronAddS16 *p = params_block;
    /* With these bounds a scaled operand is below 2^30, and the sum below 2^31. */
    const bool operands = p->a_multiplier >= 0 && p->a_shift <= 0 && p->a_shift >= -31 && p->b_shift <= 0 &&
                          p->b_shift >= -31 && p->b_multiplier != INT32_MIN;
    const bool output =
        neutron_shift_is_sound(p->output_shift) && neutron_bounds_are_sound_16(p->clamp_min, p->clamp_max);
    return operands && output && neutron_two_operands_16_are_sound(program, p->input_a, p->input_b, p->output, window);
}

typedef struct {
    NeutronOperandScale a, b;
    int32_t b_sign; /* -1 where b is subtracted, else 0 */
    int32_t multiplier, shift, low, high;
} Numbers;

static NEUTRON_INLINE int32_t scaled(int16_t stored, const NeutronOperandScale *by) {
    return neutron_scaled_difference_1(stored * (1 << LEFT_SHIFT), by);
}

static NEUTRON_INLINE void add_block(const void *numbers, const int16_t *a, const int16_t *b, int16_t *out,
                                     int32_t size) {
    const Numbers *p = numbers;
    for (int32_t i = 0; i < size; i++) {
        const int32_t sum = scaled(a[i], &p->a) + ((scaled(b[i], &p->b) ^ p->b_sign) - p->b_sign);
        out[i] = (int16_t)neutron_bound(neutron_requantize(sum, p->multiplier, p->shift), p->low, p->high);
    }
}

NEUTRON_ROWS_OF_BLOCKS_16(add)

void add_s16_run(const NeutronKernelCall *call) {
    const NeutronAddS16 *p = call->params;
    const Numbers numbers = {
        .a = neutron_operand_scale(0, p->a_multiplier, p->a_shift),
        .b = neutron_operand_scale(0, p->b_multiplier < 0 ? -p->b_multiplier : p->b_multiplier, p->b_shift),
        .b_sign = p->b_multiplier < 0 ? -1 : 0,
        .multiplier = p->output_multiplier,
        .shift = p->output_shift,
        .low = p->clamp_min,
        .high = p->clamp_max,
    };
    neutron_for_each_row(call, p->input_a, p->input_b, p->output, &numbers, NEUTRON_FASTEST(add_row));
}
