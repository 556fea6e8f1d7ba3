/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_integer_ops::MulElementwise (integer_ops/mul.h). */
#include "two_operands_dsp.h"
#include "two_operands.h"

bool mul_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronMulS8 *p = params_block;
    const bool numbers = neutron_is_stored(p->a_zero_point) && neutron_is_stored(p->b_zero_point) &&
                         neutron_shift_is_sound(p->output_shift) && neutron_is_stored(p->output_zero_point) &&
                         neutron_bounds_are_sound(p->clamp_min, p->clamp_max);
    return numbers && neutron_two_operands_are_sound(program, p->input_a, p->input_b, p->output, window);
}

#if NEUTRON_DSP && !NEUTRON_VECTORS

typedef struct {
    uint32_t a_zero_points, b_zero_points; /* less two */
    NeutronResultScaleDsp scale;
    uint32_t low, high;
} Numbers;

static void mul_words(const void *numbers, const uint8_t *a, const uint8_t *b, uint8_t *out, int32_t words) {
    const Numbers *p = numbers;
    for (; words > 0; words--, a += 4, b += 4, out += 4) {
        const uint32_t word_a = neutron_load_word(a), word_b = neutron_load_word(b);
        const uint32_t even_a = neutron_add_even_bytes(p->a_zero_points, word_a);
        const uint32_t even_b = neutron_add_even_bytes(p->b_zero_points, word_b);
        const uint32_t odd_a = neutron_add_odd_bytes(p->a_zero_points, word_a);
        const uint32_t odd_b = neutron_add_odd_bytes(p->b_zero_points, word_b);
        int32_t x[4] = {
            (int16_t)even_a * (int16_t)even_b,
            (int16_t)odd_a * (int16_t)odd_b,
            ((int32_t)even_a >> 16) * ((int32_t)even_b >> 16),
            ((int32_t)odd_a >> 16) * ((int32_t)odd_b >> 16),
        };
        NEUTRON_UNROLL
        for (int i = 0; i < 4; i++) x[i] = neutron_result_dsp(x[i], &p->scale);
        const uint32_t word = neutron_stored_word(x[0], x[1], x[2], x[3]);
        neutron_store_word(out, neutron_min_bytes(neutron_max_bytes(word, p->low), p->high));
    }
}

void mul_s8_run(const NeutronKernelCall *call) {
    const NeutronMulS8 *p = call->params;
    const Numbers numbers = {
        .a_zero_points = neutron_twice(-p->a_zero_point),
        .b_zero_points = neutron_twice(-p->b_zero_point),
        .scale = neutron_result_scale_dsp(p->output_multiplier, p->output_shift, p->output_zero_point),
        .low = neutron_four_bytes(p->clamp_min),
        .high = neutron_four_bytes(p->clamp_max),
    };
    neutron_two_operands_dsp(call, p->input_a, p->input_b, p->output, &numbers, mul_words);
}

#else

typedef struct {
    int32_t a_zero_point, b_zero_point;
    NeutronResult result;
} Numbers;

#define DEFINE_PRODUCT(type, suffix, attributes)                       \
    attributes type product##suffix(const void *numbers, type a, type b) { \
        const Numbers *p = numbers;                                    \
        return (a - p->a_zero_point) * (b - p->b_zero_point);          \
    }
NEUTRON_FOR_EACH_WIDTH(DEFINE_PRODUCT)

NEUTRON_ROWS_OF_NUMBERS(mul, Numbers, product)

void mul_s8_run(const NeutronKernelCall *call) {
    const NeutronMulS8 *p = call->params;
    const Numbers numbers = {
        .a_zero_point = p->a_zero_point,
        .b_zero_point = p->b_zero_point,
        .result = neutron_result(p->output_multiplier, p->output_shift, p->output_zero_point, p->clamp_min, p->clamp_max),
    };
    neutron_for_each_row(call, p->input_a, p->input_b, p->output, &numbers, NEUTRON_FASTEST(mul_row));
}

#endif
