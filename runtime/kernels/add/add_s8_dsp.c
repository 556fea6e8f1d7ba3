/* SPDX-License-Identifier: BSD-3-Clause */
/* add_s8 for the DSP extension. This takes every call. */
#include "two_operands_dsp.h"

#if NEUTRON_DSP

void add_s8_run(const NeutronKernelCall *call);

typedef struct {
    uint32_t zero_points; /* less two */
    int32_t multiplier;
    NeutronRounding rounding;
} Operand;

typedef struct {
    Operand a, b;
    int32_t b_sign;
    bool scale_fits; /* else by `p` */
    NeutronDspScale scale;
    uint32_t low, high;
    const NeutronAddS8 *p;
} Numbers;

/* A scaled operand, from (value - zero point) * 2^21: the doubling high product of half as much and the multiplier. */
static NEUTRON_INLINE int32_t scaled(uint32_t value, const Operand *operand) {
    return neutron_shift_rounding(neutron_rounded_high_word((int32_t)value, operand->multiplier), operand->rounding);
}

/* Those of four elements. */
static NEUTRON_INLINE void scale_word(int32_t *to, uint32_t word, const Operand *operand) {
    const uint32_t even = neutron_add_even_bytes(operand->zero_points, word);
    const uint32_t odd = neutron_add_odd_bytes(operand->zero_points, word);
    to[0] = scaled(even << 21, operand);
    to[1] = scaled(odd << 21, operand);
    to[2] = scaled(even >> 16 << 21, operand);
    to[3] = scaled(odd >> 16 << 21, operand);
}

/* A sum whose scale does not fit, with the zero point. */
static __attribute__((noinline)) int32_t rescaled(const NeutronAddS8 *p, int32_t sum) {
    const int32_t left = p->output_shift > 0 ? p->output_shift : 0;
    const int32_t product = neutron_high_mul((int32_t)((uint32_t)sum << left), p->output_multiplier);
    return __qadd(neutron_shift_rounding(product, neutron_rounding(left - p->output_shift)), p->output_zero_point);
}

static void add_words(const void *numbers, const uint8_t *a, const uint8_t *b, uint8_t *out, int32_t words) {
    const Numbers *p = numbers;
    for (; words > 0; words--, a += 4, b += 4, out += 4) {
        int32_t x[4], y[4];
        scale_word(x, neutron_load_word(a), &p->a);
        scale_word(y, neutron_load_word(b), &p->b);
        const bool fits = p->scale_fits;
        NEUTRON_UNROLL
        for (int i = 0; i < 4; i++) {
            x[i] += y[i] * p->b_sign;
            x[i] = fits ? neutron_dsp_rounded_twice(x[i], p->scale) : rescaled(p->p, x[i]);
        }
        const uint32_t word = neutron_stored_word(x[0], x[1], x[2], x[3]);
        neutron_store_word(out, neutron_min_bytes(neutron_max_bytes(word, p->low), p->high));
    }
}

static Operand operand(int32_t zero_point, int32_t multiplier, int32_t shift) {
    const Operand scaling = {neutron_twice(-zero_point), multiplier, neutron_rounding(-shift)};
    return scaling;
}

void add_s8_run(const NeutronKernelCall *call) {
    const NeutronAddS8 *p = call->params;
    Numbers numbers = {
        .a = operand(p->a_zero_point, p->a_multiplier, p->a_shift),
        .b = operand(p->b_zero_point, p->b_multiplier < 0 ? -p->b_multiplier : p->b_multiplier, p->b_shift),
        .b_sign = p->b_multiplier < 0 ? -1 : 1,
        .scale_fits = neutron_dsp_scale_fits(p->output_multiplier, p->output_shift),
        .low = neutron_four_bytes(p->clamp_min),
        .high = neutron_four_bytes(p->clamp_max),
        .p = p,
    };
    if (numbers.scale_fits) {
        numbers.scale = neutron_dsp_scale(p->output_multiplier, p->output_shift, p->output_zero_point);
    }
    neutron_two_operands_dsp(call, p->input_a, p->input_b, p->output, &numbers, add_words);
}

#endif
