/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_ops::Prelu for int8 (reference/prelu.h). */
#include "two_operands.h"
#include "two_operands_dsp.h"

bool prelu_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronPreluS8 *p = params_block;
    const bool numbers = neutron_is_stored(p->a_zero_point) && neutron_is_stored(p->b_zero_point) &&
                         neutron_shift_is_sound(p->positive_shift) && neutron_shift_is_sound(p->negative_shift) &&
                         neutron_is_stored(p->output_zero_point);
    return numbers && neutron_two_operands_are_sound(program, p->input_a, p->input_b, p->output, window);
}

typedef struct {
    int32_t multiplier, left;
    NeutronRounding rounding;
} Scale;

typedef struct {
    int32_t a_zero_point, b_zero_point, output_zero_point;
    Scale positive, negative;
} Numbers;

static Scale scale(int32_t multiplier, int32_t shift) {
    return (Scale){multiplier, shift > 0 ? shift : 0, neutron_rounding(shift > 0 ? 0 : -shift)};
}

static NEUTRON_INLINE int32_t scaled(int32_t x, const Scale *by) {
    const int32_t shifted = (int32_t)((uint32_t)x << by->left);
    return neutron_shift_rounding(neutron_high_mul(shifted, by->multiplier), by->rounding);
}

#if NEUTRON_DSP

/* The result for a less its zero point, and b less its zero point. */
static __attribute__((noinline)) int32_t result_of(const Numbers *p, int32_t a, int32_t b) {
    return __qadd(scaled(a >= 0 ? a : a * b, a >= 0 ? &p->positive : &p->negative), p->output_zero_point);
}

static void prelu_words(const void *numbers, const uint8_t *a, const uint8_t *b, uint8_t *out, int32_t words) {
    const Numbers *p = numbers;
    const uint32_t a_zero_points = neutron_twice(-p->a_zero_point), b_zero_points = neutron_twice(-p->b_zero_point);
    for (; words > 0; words--, a += 4, b += 4, out += 4) {
        const uint32_t word_a = neutron_load_word(a), word_b = neutron_load_word(b);
        const uint32_t even_a = neutron_add_even_bytes(a_zero_points, word_a);
        const uint32_t even_b = neutron_add_even_bytes(b_zero_points, word_b);
        const uint32_t odd_a = neutron_add_odd_bytes(a_zero_points, word_a);
        const uint32_t odd_b = neutron_add_odd_bytes(b_zero_points, word_b);
        const int32_t first = result_of(p, (int16_t)even_a, (int16_t)even_b);
        const int32_t second = result_of(p, (int16_t)odd_a, (int16_t)odd_b);
        const int32_t third = result_of(p, (int32_t)even_a >> 16, (int32_t)even_b >> 16);
        const int32_t fourth = result_of(p, (int32_t)odd_a >> 16, (int32_t)odd_b >> 16);
        neutron_store_word(out, neutron_stored_word(first, second, third, fourth));
    }
}

#else

static NEUTRON_INLINE void prelu_block(const void *numbers, const int8_t *a, const int8_t *b, int8_t *out,
                                       int32_t size) {
    const Numbers *p = numbers;
    const int32_t low = INT8_MIN - p->output_zero_point, high = INT8_MAX - p->output_zero_point;
    for (int32_t i = 0; i < size; i++) {
        const int32_t x = a[i] - p->a_zero_point;
        const int32_t positive = scaled(x, &p->positive), negative = scaled(x * (b[i] - p->b_zero_point), &p->negative);
        out[i] = (int8_t)(neutron_bound(x >= 0 ? positive : negative, low, high) + p->output_zero_point);
    }
}

NEUTRON_ROWS_OF_BLOCKS(prelu)

#endif

void prelu_s8_run(const NeutronKernelCall *call) {
    const NeutronPreluS8 *p = call->params;
    const Numbers numbers = {
        .a_zero_point = p->a_zero_point,
        .b_zero_point = p->b_zero_point,
        .output_zero_point = p->output_zero_point,
        .positive = scale(p->positive_multiplier, p->positive_shift),
        .negative = scale(p->negative_multiplier, p->negative_shift),
    };
#if NEUTRON_DSP
    neutron_two_operands_dsp(call, p->input_a, p->input_b, p->output, &numbers, prelu_words);
#else
    neutron_for_each_row(call, p->input_a, p->input_b, p->output, &numbers, NEUTRON_FASTEST(prelu_row));
#endif
}
