/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_integer_ops::AddFunc (integer_ops/add.h), and its quantized SUB (sub.h): there the scaled b is
 * subtracted, which is not the same as a multiplier of the other sign where a product lies halfway between two values. */
#include "elements_avx512.h"
#include "two_operands.h"
#include "two_operands_dsp.h"

bool add_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronAddS8 *p = params_block;
    /* With these bounds a scaled operand is below 2^28, and the sum below 2^29. */
    const bool operands = neutron_is_stored(p->a_zero_point) && neutron_is_stored(p->b_zero_point) &&
                          p->a_shift <= 0 && p->a_shift >= -31 && p->b_shift <= 0 && p->b_shift >= -31 &&
                          p->b_multiplier != INT32_MIN;
    const bool output = neutron_shift_is_sound(p->output_shift) && neutron_is_stored(p->output_zero_point) &&
                        neutron_bounds_are_sound(p->clamp_min, p->clamp_max);
    return operands && output && neutron_two_operands_are_sound(program, p->input_a, p->input_b, p->output, window);
}

#if NEUTRON_DSP

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

typedef struct {
    int32_t zero_point, multiplier_high, multiplier_low;
    NeutronRounding rounding;
} Operand;

static Operand operand(int32_t zero_point, int32_t multiplier, int32_t shift) {
    return (Operand){zero_point, multiplier >> 11, multiplier & 2047, neutron_rounding(-shift)};
}

/* The doubling high product of (value - zero point) * 2^20 and the multiplier, which is
 * floor((value - zero point) * multiplier / 2^11 + 1/2), without a product of more than 32 bits. */
static NEUTRON_INLINE int32_t scaled(int8_t stored, const Operand *operand) {
    const int32_t value = stored - operand->zero_point;
    const int32_t product = value * operand->multiplier_high + ((value * operand->multiplier_low + 1024) >> 11);
    return neutron_shift_rounding(product, operand->rounding);
}

typedef struct {
    Operand a, b;
    int32_t b_sign;
    int32_t output_multiplier, output_left;
    NeutronRounding output_rounding;
    int32_t output_zero_point, low, high; /* low and high are bounds before the zero point is added */
} Numbers;

static Numbers numbers_of(const NeutronAddS8 *p) {
    return (Numbers){
        .a = operand(p->a_zero_point, p->a_multiplier, p->a_shift),
        .b = operand(p->b_zero_point, p->b_multiplier < 0 ? -p->b_multiplier : p->b_multiplier, p->b_shift),
        .b_sign = p->b_multiplier < 0 ? -1 : 1,
        .output_multiplier = p->output_multiplier,
        .output_left = p->output_shift > 0 ? p->output_shift : 0,
        .output_rounding = neutron_rounding(p->output_shift > 0 ? 0 : -p->output_shift),
        .output_zero_point = p->output_zero_point,
        .low = p->clamp_min - p->output_zero_point,
        .high = p->clamp_max - p->output_zero_point,
    };
}

static NEUTRON_INLINE void add_block(const void *numbers, const int8_t *a, const int8_t *b, int8_t *out,
                                     int32_t size) {
    const Numbers *p = numbers;
    for (int32_t i = 0; i < size; i++) {
        const uint32_t sum = (uint32_t)(scaled(a[i], &p->a) + scaled(b[i], &p->b) * p->b_sign) << p->output_left;
        const int32_t product = neutron_high_mul((int32_t)sum, p->output_multiplier);
        const int32_t rescaled = neutron_shift_rounding(product, p->output_rounding);
        out[i] = (int8_t)(neutron_bound(rescaled, p->low, p->high) + p->output_zero_point);
    }
}

static void add_row(const void *numbers, const NeutronTwoOperandRow *row) {
    neutron_for_each_block(numbers, row, add_block);
}

#ifdef NEUTRON_AVX2
typedef struct {
    __m256i zero_point, multiplier_high, multiplier_low;
    NeutronRoundingAvx2 rounding;
} OperandAvx2;

NEUTRON_AVX2_INLINE OperandAvx2 operand_avx2(const Operand *operand) {
    return (OperandAvx2){_mm256_set1_epi32(operand->zero_point), _mm256_set1_epi32(operand->multiplier_high),
                         _mm256_set1_epi32(operand->multiplier_low), neutron_rounding_avx2(operand->rounding)};
}

NEUTRON_AVX2_INLINE __m256i scaled_avx2(__m256i stored, const OperandAvx2 *operand) {
    const __m256i value = _mm256_sub_epi32(stored, operand->zero_point);
    const __m256i high = _mm256_mullo_epi32(value, operand->multiplier_high);
    const __m256i low = _mm256_mullo_epi32(value, operand->multiplier_low);
    const __m256i rounded = _mm256_srai_epi32(_mm256_add_epi32(low, _mm256_set1_epi32(1024)), 11);
    return neutron_shift_rounding_avx2(_mm256_add_epi32(high, rounded), &operand->rounding);
}

NEUTRON_AVX2 static void add_row_avx2(const void *numbers, const NeutronTwoOperandRow *row) {
    const Numbers *p = numbers;
    const OperandAvx2 wide_a = operand_avx2(&p->a), wide_b = operand_avx2(&p->b);
    const NeutronRoundingAvx2 rounding = neutron_rounding_avx2(p->output_rounding);
    const __m128i left = _mm_cvtsi32_si128(p->output_left);
    const __m256i b_sign = _mm256_set1_epi32(p->b_sign), multiplier = _mm256_set1_epi32(p->output_multiplier);
    const __m256i zero_point = _mm256_set1_epi32(p->output_zero_point);
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
            const __m256i term_b = _mm256_sign_epi32(scaled_avx2(neutron_widened(b), &wide_b), b_sign);
            const __m256i sum = _mm256_add_epi32(scaled_avx2(neutron_widened(a), &wide_a), term_b);
            const __m256i product = neutron_high_mul_avx2(_mm256_sll_epi32(sum, left), multiplier);
            const __m256i rescaled = neutron_shift_rounding_avx2(product, &rounding);
            neutron_store_narrowed(out, _mm256_add_epi32(neutron_bound_avx2(rescaled, low, high), zero_point));
            if (size == 8) {
                neutron_store_result(row, c, done, out, 8);
            } else {
                neutron_store_result(row, c, done, out, size);
            }
        }
    }
}

typedef struct {
    __m512i zero_point, multiplier_high, multiplier_low;
    NeutronRoundingAvx512 rounding;
} OperandAvx512;

NEUTRON_AVX512_INLINE OperandAvx512 operand_avx512(const Operand *operand) {
    return (OperandAvx512){_mm512_set1_epi32(operand->zero_point), _mm512_set1_epi32(operand->multiplier_high),
                           _mm512_set1_epi32(operand->multiplier_low), neutron_rounding_avx512(operand->rounding)};
}

NEUTRON_AVX512_INLINE __m512i scaled_avx512(__m512i stored, const OperandAvx512 *operand) {
    const __m512i value = _mm512_sub_epi32(stored, operand->zero_point);
    const __m512i high = _mm512_mullo_epi32(value, operand->multiplier_high);
    const __m512i low = _mm512_mullo_epi32(value, operand->multiplier_low);
    const __m512i rounded = _mm512_srai_epi32(_mm512_add_epi32(low, _mm512_set1_epi32(1024)), 11);
    return neutron_shift_rounding_avx512(_mm512_add_epi32(high, rounded), &operand->rounding);
}

NEUTRON_AVX512 static void add_row_avx512(const void *numbers, const NeutronTwoOperandRow *row) {
    const Numbers *p = numbers;
    if (row->a_pitch > 1 || row->b_pitch > 1 || row->out_pitch != 1) {
        add_row_avx2(numbers, row);
        return;
    }
    const OperandAvx512 wide_a = operand_avx512(&p->a), wide_b = operand_avx512(&p->b);
    const NeutronRoundingAvx512 rounding = neutron_rounding_avx512(p->output_rounding);
    const __m128i left = _mm_cvtsi32_si128(p->output_left);
    const __mmask16 subtracted = p->b_sign < 0 ? 0xFFFFu : 0u;
    const __m512i multiplier = _mm512_set1_epi32(p->output_multiplier);
    const __m512i zero_point = _mm512_set1_epi32(p->output_zero_point);
    const __m512i low = _mm512_set1_epi32(p->low), high = _mm512_set1_epi32(p->high);
    for (int32_t c = 0; c < row->cols; c++) {
        const uint8_t *a = row->a + (ptrdiff_t)c * row->a_col_pitch, *b = row->b + (ptrdiff_t)c * row->b_col_pitch;
        uint8_t *out = row->out + (ptrdiff_t)c * row->out_col_pitch;
        for (int32_t done = 0; done < row->length; done += 16) {
            const __mmask16 some = neutron_some_of_16(row->length - done);
            const __m512i term_a = scaled_avx512(neutron_line_avx512(a, done, row->a_pitch, some), &wide_a);
            const __m512i term_b = scaled_avx512(neutron_line_avx512(b, done, row->b_pitch, some), &wide_b);
            const __m512i sum = _mm512_mask_sub_epi32(_mm512_add_epi32(term_a, term_b), subtracted, term_a, term_b);
            const __m512i product = neutron_high_mul_avx512(_mm512_sll_epi32(sum, left), multiplier);
            neutron_store_bounded_avx512(out + done, some, neutron_shift_rounding_avx512(product, &rounding), low, high,
                                         zero_point);
        }
    }
}
#endif

void add_s8_run(const NeutronKernelCall *call) {
    const NeutronAddS8 *p = call->params;
    const Numbers numbers = numbers_of(p);
    NeutronTwoOperandRun run = add_row;
#ifdef NEUTRON_AVX2
    if (neutron_has_avx2()) run = add_row_avx2;
    if (neutron_has_avx512()) run = add_row_avx512;
#endif
    neutron_for_each_row(call, p->input_a, p->input_b, p->output, &numbers, run);
}

#endif
