/* SPDX-License-Identifier: BSD-3-Clause */
/* mul_s8 for the DSP extension. This takes every call. */
#include "two_operands_dsp.h"

#if NEUTRON_DSP

void mul_s8_run(const NeutronKernelCall *call);

typedef struct {
    uint32_t a_zero_points, b_zero_points; /* less two */
    bool scale_fits;                       /* else by `p` */
    NeutronDspScale scale;
    uint32_t low, high;
    const NeutronMulS8 *p;
} Numbers;

/* A product whose scale does not fit, with the zero point. */
static __attribute__((noinline)) int32_t rescaled(const NeutronMulS8 *p, int32_t product) {
    const int32_t left = p->output_shift > 0 ? p->output_shift : 0;
    const int32_t x = neutron_high_mul((int32_t)((uint32_t)product << left), p->output_multiplier);
    return __qadd(neutron_shift_rounding(x, neutron_rounding(left - p->output_shift)), p->output_zero_point);
}

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
        const bool fits = p->scale_fits;
        NEUTRON_UNROLL
        for (int i = 0; i < 4; i++) x[i] = fits ? neutron_dsp_rounded_twice(x[i], p->scale) : rescaled(p->p, x[i]);
        const uint32_t word = neutron_stored_word(x[0], x[1], x[2], x[3]);
        neutron_store_word(out, neutron_min_bytes(neutron_max_bytes(word, p->low), p->high));
    }
}

void mul_s8_run(const NeutronKernelCall *call) {
    const NeutronMulS8 *p = call->params;
    Numbers numbers = {
        .a_zero_points = neutron_twice(-p->a_zero_point),
        .b_zero_points = neutron_twice(-p->b_zero_point),
        .scale_fits = neutron_dsp_scale_fits(p->output_multiplier, p->output_shift),
        .low = neutron_four_bytes(p->clamp_min),
        .high = neutron_four_bytes(p->clamp_max),
        .p = p,
    };
    if (numbers.scale_fits) {
        numbers.scale = neutron_dsp_scale(p->output_multiplier, p->output_shift, p->output_zero_point);
    }
    neutron_two_operands_dsp(call, p->input_a, p->input_b, p->output, &numbers, mul_words);
}

#endif
