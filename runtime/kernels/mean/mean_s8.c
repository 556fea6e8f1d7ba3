/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_ops::QuantizedMeanOrSum (reduce.h); the division by the number of elements is in the multiplier. */
#include "pool.h"

bool mean_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronMeanS8 *p = params_block;
    if (!neutron_plane_is_sound(program, p->input, p->output, window)) return false;
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    /* A sum of this many differences of two stored values fits 32 bits. */
    return (int64_t)in->rows * in->cols <= 1 << 23 && neutron_is_stored(p->input_zero_point) &&
           neutron_shift_is_sound(p->output_shift) && neutron_is_stored(p->output_zero_point) &&
           neutron_bounds_are_sound(p->clamp_min, p->clamp_max);
}

static NEUTRON_INLINE void finish(const NeutronPool *pool, const NeutronPoolPoint *point, const int32_t *sums,
                                  int16_t *stored, int32_t size) {
    const NeutronMeanS8 *p = pool->params;
    const int32_t zero_points = point->rows * point->cols * p->input_zero_point;
    /* Bounded before the zero point is added, so that the sum can't overflow. */
    const int32_t low = p->clamp_min - p->output_zero_point, high = p->clamp_max - p->output_zero_point;
    for (int32_t i = 0; i < size; i++) {
        const int32_t rescaled = neutron_requantize(sums[i] - zero_points, p->output_multiplier, p->output_shift);
        stored[i] = (int16_t)(neutron_bound(rescaled, low, high) + p->output_zero_point);
    }
}

static void mean(const NeutronPool *pool, const NeutronPoolPoint *point) { neutron_sum(pool, point, finish); }

#ifdef NEUTRON_AVX2
/* Largest number of elements for which neutron_shift_rounding rounds as neutron_rounding_shift_right does. */
enum { MOST_IN_VECTORS = 1 << 21 };

NEUTRON_AVX2 static void mean_avx2(const NeutronPool *pool, const NeutronPoolPoint *point) {
    const NeutronMeanS8 *p = pool->params;
    const int32_t count = point->rows * point->cols;
    if (count > MOST_IN_VECTORS) {
        mean(pool, point);
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
    for (; done <= point->channels - 8; done += 8) {
        __m256i sum;
        neutron_sum_of_taps(pool, point, done, &sum, 1);
        const __m256i shifted = _mm256_sll_epi32(_mm256_sub_epi32(sum, zero_points), left);
        const __m256i rescaled = neutron_shift_rounding_avx2(neutron_high_mul_avx2(shifted, multiplier), &rounding);
        neutron_store_narrowed(point->to + done,
                               _mm256_add_epi32(neutron_bound_avx2(rescaled, low, high), zero_point));
    }
    neutron_point_blocks(pool, point, done, 0, neutron_add_taps, finish, 1, 1);
}
#endif

void mean_s8_run(const NeutronKernelCall *call) {
    const NeutronMeanS8 *p = call->params;
    neutron_for_each_plane(call, p->input, p->output, mean, NEUTRON_FASTEST(mean));
}
