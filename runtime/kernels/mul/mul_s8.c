/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_integer_ops::MulElementwise (integer_ops/mul.h). */
#include "elements_avx512.h"
#include "two_operands.h"
#include "two_operands_dsp.h"

bool mul_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronMulS8 *p = params_block;
    const bool numbers = neutron_is_stored(p->a_zero_point) && neutron_is_stored(p->b_zero_point) &&
                         neutron_shift_is_sound(p->output_shift) && neutron_is_stored(p->output_zero_point) &&
                         neutron_bounds_are_sound(p->clamp_min, p->clamp_max);
    return numbers && neutron_two_operands_are_sound(program, p->input_a, p->input_b, p->output, window);
}

#if NEUTRON_DSP

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
    int32_t a_zero_point, b_zero_point, multiplier, left;
    NeutronRounding rounding;
    int32_t output_zero_point, low, high; /* low and high are bounds before the zero point is added */
} Numbers;

static NEUTRON_INLINE void mul_block(const void *numbers, const int8_t *a, const int8_t *b, int8_t *out,
                                     int32_t size) {
    const Numbers *p = numbers;
    for (int32_t i = 0; i < size; i++) {
        const uint32_t product = (uint32_t)((a[i] - p->a_zero_point) * (b[i] - p->b_zero_point)) << p->left;
        const int32_t rescaled = neutron_shift_rounding(neutron_high_mul((int32_t)product, p->multiplier), p->rounding);
        out[i] = (int8_t)(neutron_bound(rescaled, p->low, p->high) + p->output_zero_point);
    }
}

static void mul_row(const void *numbers, const NeutronTwoOperandRow *row) {
    neutron_for_each_block(numbers, row, mul_block);
}

#ifdef NEUTRON_AVX2
NEUTRON_AVX2 static void mul_row_avx2(const void *numbers, const NeutronTwoOperandRow *row) {
    const Numbers *p = numbers;
    const NeutronRoundingAvx2 rounding = neutron_rounding_avx2(p->rounding);
    const __m128i left = _mm_cvtsi32_si128(p->left);
    const __m256i a_zero_point = _mm256_set1_epi32(p->a_zero_point), b_zero_point = _mm256_set1_epi32(p->b_zero_point);
    const __m256i multiplier = _mm256_set1_epi32(p->multiplier), zero_point = _mm256_set1_epi32(p->output_zero_point);
    const __m256i low = _mm256_set1_epi32(p->low), high = _mm256_set1_epi32(p->high);
    for (int32_t c = 0; c < row->cols; c++) {
        int8_t a[8] = {0}, b[8] = {0}, out[8];
        for (int32_t done = 0; done < row->length; done += 8) {
            const int32_t size = row->length - done < 8 ? row->length - done : 8;
            if (size == 8) {
                neutron_load_operands(row, c, done, a, b, 8);
            } else {
                neutron_load_operands(row, c, done, a, b, size);
            }
            const __m256i product = _mm256_mullo_epi32(_mm256_sub_epi32(neutron_widened(a), a_zero_point),
                                                       _mm256_sub_epi32(neutron_widened(b), b_zero_point));
            const __m256i scaled = neutron_high_mul_avx2(_mm256_sll_epi32(product, left), multiplier);
            const __m256i rescaled = neutron_shift_rounding_avx2(scaled, &rounding);
            neutron_store_narrowed(out, _mm256_add_epi32(neutron_bound_avx2(rescaled, low, high), zero_point));
            if (size == 8) {
                neutron_store_result(row, c, done, out, 8);
            } else {
                neutron_store_result(row, c, done, out, size);
            }
        }
    }
}

NEUTRON_AVX512 static void mul_row_avx512(const void *numbers, const NeutronTwoOperandRow *row) {
    const Numbers *p = numbers;
    if (row->a_pitch > 1 || row->b_pitch > 1 || row->out_pitch != 1) {
        mul_row_avx2(numbers, row);
        return;
    }
    const NeutronRoundingAvx512 rounding = neutron_rounding_avx512(p->rounding);
    const __m128i left = _mm_cvtsi32_si128(p->left);
    const __m512i a_zero_point = _mm512_set1_epi32(p->a_zero_point), b_zero_point = _mm512_set1_epi32(p->b_zero_point);
    const __m512i multiplier = _mm512_set1_epi32(p->multiplier), zero_point = _mm512_set1_epi32(p->output_zero_point);
    const __m512i low = _mm512_set1_epi32(p->low), high = _mm512_set1_epi32(p->high);
    for (int32_t c = 0; c < row->cols; c++) {
        const uint8_t *a = row->a + (ptrdiff_t)c * row->a_col_pitch, *b = row->b + (ptrdiff_t)c * row->b_col_pitch;
        uint8_t *out = row->out + (ptrdiff_t)c * row->out_col_pitch;
        for (int32_t done = 0; done < row->length; done += 16) {
            const __mmask16 some = neutron_some_of_16(row->length - done);
            const __m512i value_a = _mm512_sub_epi32(neutron_line_avx512(a, done, row->a_pitch, some), a_zero_point);
            const __m512i value_b = _mm512_sub_epi32(neutron_line_avx512(b, done, row->b_pitch, some), b_zero_point);
            const __m512i product = _mm512_sll_epi32(_mm512_mullo_epi32(value_a, value_b), left);
            const __m512i scaled = neutron_high_mul_avx512(product, multiplier);
            neutron_store_bounded_avx512(out + done, some, neutron_shift_rounding_avx512(scaled, &rounding), low, high,
                                         zero_point);
        }
    }
}
#endif

void mul_s8_run(const NeutronKernelCall *call) {
    const NeutronMulS8 *p = call->params;
    const Numbers numbers = {
        .a_zero_point = p->a_zero_point,
        .b_zero_point = p->b_zero_point,
        .multiplier = p->output_multiplier,
        .left = p->output_shift > 0 ? p->output_shift : 0,
        .rounding = neutron_rounding(p->output_shift > 0 ? 0 : -p->output_shift),
        .output_zero_point = p->output_zero_point,
        .low = p->clamp_min - p->output_zero_point,
        .high = p->clamp_max - p->output_zero_point,
    };
    NeutronTwoOperandRun run = mul_row;
#ifdef NEUTRON_AVX2
    if (neutron_has_avx2()) run = mul_row_avx2;
    if (neutron_has_avx512()) run = mul_row_avx512;
#endif
    neutron_for_each_row(call, p->input_a, p->input_b, p->output, &numbers, run);
}

#endif
