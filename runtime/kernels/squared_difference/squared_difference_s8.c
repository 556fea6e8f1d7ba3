/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's SquaredDifference of two int8 values (squared_difference.cc). */
#include "two_operands.h"
#include "two_operands_dsp.h"

/* Bits that both operands are shifted left by. */
enum { FRACTION_BITS = 7 };

/* An operand's factor is at most 1/2: two operands' difference is then below 2^15, and its square below 2^30. */
static bool operand_is_sound(int32_t zero_point, int32_t multiplier, int32_t shift) {
    return neutron_is_stored(zero_point) && shift >= -31 && shift <= 0 && multiplier >= 0 &&
           multiplier >> -shift <= 1 << 30;
}

bool squared_difference_s8_check(const NeutronProgramView *program, const void *params_block,
                                 const NeutronWindowExtents *window) {
    const NeutronSquaredDifferenceS8 *p = params_block;
    const bool numbers = operand_is_sound(p->a_zero_point, p->a_multiplier, p->a_shift) &&
                         operand_is_sound(p->b_zero_point, p->b_multiplier, p->b_shift) && p->output_shift >= -31 &&
                         p->output_shift <= 0 && neutron_is_stored(p->output_zero_point);
    return numbers && neutron_two_operands_are_sound(program, p->input_a, p->input_b, p->output, window);
}

#if NEUTRON_DSP && !NEUTRON_VECTORS

typedef struct {
    NeutronOperandDsp a, b, output;
    int32_t zero_point;
} Numbers;

static void squared_difference_words(const void *numbers, const uint8_t *a, const uint8_t *b, uint8_t *out,
                                     int32_t words) {
    const Numbers *p = numbers;
    for (; words > 0; words--, a += 4, b += 4, out += 4) {
        int32_t x[4], y[4];
        neutron_scale_word_dsp(x, neutron_load_word(a), &p->a, FRACTION_BITS);
        neutron_scale_word_dsp(y, neutron_load_word(b), &p->b, FRACTION_BITS);
        NEUTRON_UNROLL
        for (int i = 0; i < 4; i++) {
            const int32_t difference = x[i] - y[i];
            x[i] = neutron_scaled_dsp(2 * difference * difference, &p->output) + p->zero_point;
        }
        neutron_store_word(out, neutron_stored_word(x[0], x[1], x[2], x[3]));
    }
}

void squared_difference_s8_run(const NeutronKernelCall *call) {
    const NeutronSquaredDifferenceS8 *p = call->params;
    const Numbers numbers = {
        .a = neutron_operand_dsp(p->a_zero_point, p->a_multiplier, p->a_shift),
        .b = neutron_operand_dsp(p->b_zero_point, p->b_multiplier, p->b_shift),
        .output = neutron_operand_dsp(0, p->output_multiplier, p->output_shift),
        .zero_point = p->output_zero_point,
    };
    neutron_two_operands_dsp(call, p->input_a, p->input_b, p->output, &numbers, squared_difference_words);
}

#else

typedef struct {
    NeutronOperandScale a, b;
    NeutronResult result;
} Numbers;

#define DEFINE_SQUARE(type, suffix, attributes)                                                                           \
    attributes type square##suffix(const void *numbers, type a, type b) {                                                 \
        const Numbers *p = numbers;                                                                                       \
        const type left = neutron_scaled_difference##suffix((a - p->a.zero_point) * (1 << FRACTION_BITS), &p->a);         \
        const type right = neutron_scaled_difference##suffix((b - p->b.zero_point) * (1 << FRACTION_BITS), &p->b);        \
        return (left - right) * (left - right);                                                                           \
    }
NEUTRON_FOR_EACH_WIDTH(DEFINE_SQUARE)

NEUTRON_ROWS_OF_NUMBERS(squared_difference, Numbers, square)

void squared_difference_s8_run(const NeutronKernelCall *call) {
    const NeutronSquaredDifferenceS8 *p = call->params;
    const Numbers numbers = {
        .a = neutron_operand_scale(p->a_zero_point, p->a_multiplier, p->a_shift),
        .b = neutron_operand_scale(p->b_zero_point, p->b_multiplier, p->b_shift),
        .result = neutron_result(p->output_multiplier, p->output_shift, p->output_zero_point, INT8_MIN, INT8_MAX),
    };
    neutron_for_each_row(call, p->input_a, p->input_b, p->output, &numbers, NEUTRON_FASTEST(squared_difference_row));
}

#endif
