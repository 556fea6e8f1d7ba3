/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's SquaredDifference of two int8 values (squared_difference.cc). */
#include "two_operands.h"

bool squared_difference_s8_check(const NeutronProgramView *program, const void *params_block,
                                 const NeutronWindowExtents *window);
void squared_difference_s8_run(const NeutronKernelCall *call);

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
    return numbers && neutron_window_buffer(program, p->input_a, false, window) != NULL &&
           neutron_window_buffer(program, p->input_b, false, window) != NULL &&
           neutron_window_buffer(program, p->output, true, window) != NULL;
}

typedef struct {
    int32_t zero_point, multiplier;
    NeutronRounding rounding;
} Scale;

typedef struct {
    Scale a, b, output;
} Numbers;

static Scale scale(int32_t zero_point, int32_t multiplier, int32_t shift) {
    const Scale made = {zero_point, multiplier, neutron_rounding(-shift)};
    return made;
}

static NEUTRON_INLINE int32_t scaled(int32_t x, const Scale *by) {
    return neutron_shift_rounding(neutron_high_mul(x, by->multiplier), by->rounding);
}

static NEUTRON_INLINE void squared_difference_block(const void *numbers, const int8_t *a, const int8_t *b, int8_t *out,
                                                    int32_t size) {
    const Numbers *p = numbers;
    const int32_t low = INT8_MIN - p->output.zero_point, high = INT8_MAX - p->output.zero_point;
    for (int32_t i = 0; i < size; i++) {
        const int32_t left = scaled((a[i] - p->a.zero_point) * (1 << FRACTION_BITS), &p->a);
        const int32_t right = scaled((b[i] - p->b.zero_point) * (1 << FRACTION_BITS), &p->b);
        const int32_t difference = left - right;
        const int32_t square = scaled(difference * difference, &p->output);
        out[i] = (int8_t)(neutron_bound(square, low, high) + p->output.zero_point);
    }
}

static void squared_difference_row(const void *numbers, const NeutronTwoOperandRow *row) {
    neutron_for_each_block(numbers, row, squared_difference_block);
}

#ifdef NEUTRON_AVX2
NEUTRON_AVX2 static void squared_difference_row_avx2(const void *numbers, const NeutronTwoOperandRow *row) {
    neutron_for_each_block(numbers, row, squared_difference_block);
}
#endif

void squared_difference_s8_run(const NeutronKernelCall *call) {
    const NeutronSquaredDifferenceS8 *p = call->params;
    const Numbers numbers = {
        .a = scale(p->a_zero_point, p->a_multiplier, p->a_shift),
        .b = scale(p->b_zero_point, p->b_multiplier, p->b_shift),
        .output = scale(p->output_zero_point, p->output_multiplier, p->output_shift),
    };
    NeutronTwoOperandRun run = squared_difference_row;
#ifdef NEUTRON_AVX2
    if (neutron_has_avx2()) run = squared_difference_row_avx2;
#endif
    neutron_for_each_row(call, &call->buffers[p->input_a], &call->buffers[p->input_b], &call->buffers[p->output],
                         &numbers, run);
}
