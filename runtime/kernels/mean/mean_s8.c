/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_ops::QuantizedMeanOrSum (reduce.h); the division by the number of elements is in the multiplier. */
#include "elements_avx2.h"
#include "elements_dsp.h"

bool mean_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronMeanS8 *p = params_block;
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    const NeutronBuffer *out = neutron_window_buffer(program, p->output, true, window);
    if (in == NULL || out == NULL || out->rows != 1 || out->cols != 1 || window->batch1 > in->batches) return false;
    /* A sum of this many differences of two stored values fits 32 bits. */
    return (int64_t)in->rows * in->cols <= 1 << 23 &&
           neutron_buffer_holds(in, 0, in->cols, window->channel0, window->channel1) &&
           neutron_is_stored(p->input_zero_point) && neutron_shift_is_sound(p->output_shift) &&
           neutron_is_stored(p->output_zero_point) && neutron_bounds_are_sound(p->clamp_min, p->clamp_max);
}

#if NEUTRON_DSP

/* Four channels at a time. */
void mean_s8_run(const NeutronKernelCall *call) {
    const NeutronMeanS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const int32_t zero_points = in->rows * in->cols * p->input_zero_point;
    for (int32_t n = w->batch0; n < w->batch1; n++) {
        const uint8_t *from = neutron_element_address(call->bases, in, n, 0, 0, w->channel0);
        uint8_t *to = neutron_element_address(call->bases, out, n, 0, 0, w->channel0);
        for (int32_t left = w->channel1 - w->channel0; left > 0; left -= 4) {
            int32_t sums[4];
            neutron_sum_dsp(sums, in, from, 0, in->rows, in->cols, left);
            for (int32_t i = 0; i < 4 && i < left; i++, to += out->channel_pitch) {
                const int32_t x = neutron_requantize(sums[i] - zero_points, p->output_multiplier, p->output_shift);
                *to = (uint8_t)neutron_bound(__qadd(x, p->output_zero_point), p->clamp_min, p->clamp_max);
            }
            from += 4 * (ptrdiff_t)in->channel_pitch;
        }
    }
}

#else

/* Channels of one batch from `done` on, by blocks of this size. */
static NEUTRON_INLINE int32_t mean_blocks(const NeutronKernelCall *call, int32_t n, int32_t done, const int32_t size) {
    const NeutronMeanS8 *p = call->params;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const int32_t channels = call->window.channel1 - call->window.channel0;
    const int32_t zero_points = in->rows * in->cols * p->input_zero_point;
    for (; done <= channels - size; done += size) {
        const int32_t channel = call->window.channel0 + done;
        int32_t sums[NEUTRON_BLOCK] = {0};
        int8_t block[NEUTRON_BLOCK];
        for (int32_t r = 0; r < in->rows; r++) {
            const uint8_t *from = neutron_element_address(call->bases, in, n, r, 0, channel);
            for (int32_t c = 0; c < in->cols; c++) {
                neutron_load_block(block, from, in->channel_pitch, size);
                for (int32_t i = 0; i < size; i++) sums[i] += block[i];
                from += in->col_pitch;
            }
        }
        for (int32_t i = 0; i < size; i++) {
            const int32_t rescaled = neutron_requantize(sums[i] - zero_points, p->output_multiplier, p->output_shift);
            /* Bounded before the zero point is added, so that the sum can't overflow. */
            block[i] = (int8_t)(neutron_bound(rescaled, p->clamp_min - p->output_zero_point,
                                              p->clamp_max - p->output_zero_point) +
                                p->output_zero_point);
        }
        neutron_store_block(neutron_element_address(call->bases, out, n, 0, 0, channel), out->channel_pitch, block, size);
    }
    return done;
}

static void mean_batch(const NeutronKernelCall *call, int32_t n) {
    const int32_t done = NEUTRON_BLOCK > 1 ? mean_blocks(call, n, 0, NEUTRON_BLOCK) : 0;
    mean_blocks(call, n, done, 1);
}

#ifdef NEUTRON_AVX2
/* Largest number of elements for which neutron_shift_rounding rounds as neutron_rounding_shift_right does. */
enum { MOST_IN_VECTORS = 1 << 21 };

NEUTRON_AVX2 static void mean_batch_avx2(const NeutronKernelCall *call, int32_t n) {
    const NeutronMeanS8 *p = call->params;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const int32_t count = in->rows * in->cols, channels = call->window.channel1 - call->window.channel0;
    if (in->channel_pitch != 1 || out->channel_pitch != 1 || count > MOST_IN_VECTORS) {
        mean_batch(call, n);
        return;
    }
    const NeutronRoundingAvx2 rounding =
        neutron_rounding_avx2(neutron_rounding(p->output_shift > 0 ? 0 : -p->output_shift));
    const __m128i left = _mm_cvtsi32_si128(p->output_shift > 0 ? p->output_shift : 0);
    const __m256i multiplier = _mm256_set1_epi32(p->output_multiplier);
    const __m256i zero_points = _mm256_set1_epi32(count * p->input_zero_point);
    const __m256i zero_point = _mm256_set1_epi32(p->output_zero_point);
    const __m256i low = _mm256_set1_epi32(p->clamp_min - p->output_zero_point);
    const __m256i high = _mm256_set1_epi32(p->clamp_max - p->output_zero_point);
    int32_t done = 0;
    for (; done <= channels - 8; done += 8) {
        const int32_t channel = call->window.channel0 + done;
        __m256i sum = _mm256_setzero_si256();
        for (int32_t r = 0; r < in->rows; r++) {
            const uint8_t *from = neutron_element_address(call->bases, in, n, r, 0, channel);
            for (int32_t c = 0; c < in->cols; c++) {
                sum = _mm256_add_epi32(sum, neutron_widened(from + (ptrdiff_t)c * in->col_pitch));
            }
        }
        const __m256i shifted = _mm256_sll_epi32(_mm256_sub_epi32(sum, zero_points), left);
        const __m256i rescaled = neutron_shift_rounding_avx2(neutron_high_mul_avx2(shifted, multiplier), &rounding);
        neutron_store_narrowed(neutron_element_address(call->bases, out, n, 0, 0, channel),
                               _mm256_add_epi32(neutron_bound_avx2(rescaled, low, high), zero_point));
    }
    mean_blocks(call, n, done, 1);
}
#endif

void mean_s8_run(const NeutronKernelCall *call) {
    void (*run)(const NeutronKernelCall *call, int32_t n) = mean_batch;
#ifdef NEUTRON_AVX2
    if (neutron_has_avx2()) run = mean_batch_avx2;
#endif
    for (int32_t n = call->window.batch0; n < call->window.batch1; n++) run(call, n);
}

#endif
