/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_integer_ops::AddFunc (integer_ops/add.h), and its quantized SUB (sub.h): there the scaled b is
 * subtracted, which is not the same as a multiplier of the other sign if a product is halfway between two values. */
#include "sum.h"
#include "two_operands_dsp.h"

bool add_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronAddS8 *p = params_block;
    const bool operands = neutron_summands_are_sound(p->a_zero_point, p->a_shift, p->b_zero_point, p->b_multiplier, p->b_shift);
    const bool output = neutron_shift_is_sound(p->output_shift) && neutron_is_stored(p->output_zero_point) &&
                        neutron_bounds_are_sound(p->clamp_min, p->clamp_max);
    return operands && output && neutron_two_operands_are_sound(program, p->input_a, p->input_b, p->output, window);
}

#if NEUTRON_DSP && !NEUTRON_VECTORS

/* Bits that both operands are shifted left by. */
enum { LEFT_SHIFT = 20 };

typedef struct {
    NeutronOperandDsp a, b;
    int32_t b_sign;
    NeutronResultScaleDsp scale;
    uint32_t low, high;
} Numbers;

static void add_words(const void *numbers, const uint8_t *a, const uint8_t *b, uint8_t *out, int32_t words) {
    const Numbers *p = numbers;
    for (; words > 0; words--, a += 4, b += 4, out += 4) {
        int32_t x[4], y[4];
        neutron_scale_word_dsp(x, neutron_load_word(a), &p->a, LEFT_SHIFT);
        neutron_scale_word_dsp(y, neutron_load_word(b), &p->b, LEFT_SHIFT);
        NEUTRON_UNROLL
        for (int i = 0; i < 4; i++) {
            x[i] += y[i] * p->b_sign;
            x[i] = neutron_result_dsp(x[i], &p->scale);
        }
        const uint32_t word = neutron_stored_word(x[0], x[1], x[2], x[3]);
        neutron_store_word(out, neutron_min_bytes(neutron_max_bytes(word, p->low), p->high));
    }
}

void add_s8_run(const NeutronKernelCall *call) {
    const NeutronAddS8 *p = call->params;
    const Numbers numbers = {
        .a = neutron_operand_dsp(p->a_zero_point, p->a_multiplier, p->a_shift),
        .b = neutron_operand_dsp(p->b_zero_point, p->b_multiplier < 0 ? -p->b_multiplier : p->b_multiplier,
                                 p->b_shift),
        .b_sign = p->b_multiplier < 0 ? -1 : 1,
        .scale = neutron_result_scale_dsp(p->output_multiplier, p->output_shift, p->output_zero_point),
        .low = neutron_four_bytes(p->clamp_min),
        .high = neutron_four_bytes(p->clamp_max),
    };
    neutron_two_operands_dsp(call, p->input_a, p->input_b, p->output, &numbers, add_words);
}

#else

NEUTRON_ROWS_OF_NUMBERS(add, NeutronSum, neutron_sum)

void add_s8_run(const NeutronKernelCall *call) {
    const NeutronAddS8 *p = call->params;
    const NeutronSum numbers = {
        .a = neutron_summand(p->a_zero_point, p->a_multiplier, p->a_shift),
        .b = neutron_summand(p->b_zero_point, p->b_multiplier < 0 ? -p->b_multiplier : p->b_multiplier, p->b_shift),
        .b_sign = p->b_multiplier < 0 ? -1 : 0,
        .result = neutron_result(p->output_multiplier, p->output_shift, p->output_zero_point, p->clamp_min, p->clamp_max),
    };
    neutron_for_each_row(call, p->input_a, p->input_b, p->output, &numbers, NEUTRON_FASTEST(add_row));
}

#endif
