/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_ops::QuantizedMeanOrSum (reduce.h), and DepthwiseConvPerChannel (integer_ops/depthwise_conv.h) where all weights are
 * equal and the window takes the whole plane; the division by the number of elements is in the multiplier. */
#include "pool.h"
#include "two_operands.h"

bool mean_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronMeanS8 *p = params_block;
    if (!neutron_plane_is_sound(program, p->input, p->output, window)) return false;
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    if (p->weight < 1 || p->weight > INT8_MAX) return false;
    /* A sum of this many differences of two stored values fits 32 bits. */
    return (int64_t)in->rows * in->cols * p->weight <= 1 << 23 && neutron_is_stored(p->input_zero_point) &&
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
        const int32_t sum = (sums[i] - zero_points) * p->weight;
        const int32_t rescaled = neutron_requantize(sum, p->output_multiplier, p->output_shift);
        stored[i] = (int16_t)(neutron_bound(rescaled, low, high) + p->output_zero_point);
    }
}

static void mean(const NeutronPool *pool, const NeutronPoolPoint *point) { neutron_sum(pool, point, finish); }

#if NEUTRON_VECTORS
/* Largest number of elements, times the weight, for which neutron_shift_rounding rounds as neutron_rounding_shift_right does. */
enum { MOST_IN_VECTORS = 1 << 21 };

typedef struct {
    NeutronWords zero_points, weight;
    NeutronResultWords result;
} Rescale;

NEUTRON_VECTOR_INLINE void finish_vector(const void *numbers, uint8_t *to, NeutronWords *sums, const int32_t steps,
                                         int32_t count) {
    const Rescale *by = numbers;
    NEUTRON_UNROLL
    for (int i = 0; i < steps * NEUTRON_PARTS; i++) {
        sums[i] = neutron_result_of_words((sums[i] - by->zero_points) * by->weight, &by->result);
    }
    NEUTRON_UNROLL
    for (int i = 0; i < steps; i++) {
        neutron_store_words_8(to + (ptrdiff_t)i * NEUTRON_STEP, sums + i * NEUTRON_PARTS, count - i * NEUTRON_STEP);
    }
}

NEUTRON_VECTOR static void mean_vector(const NeutronPool *pool, const NeutronPoolPoint *point) {
    const NeutronMeanS8 *p = pool->params;
    const int32_t count = point->rows * point->cols;
    if (count > MOST_IN_VECTORS / p->weight) {
        mean(pool, point);
        return;
    }
    const NeutronResult result =
        neutron_result(p->output_multiplier, p->output_shift, p->output_zero_point, p->clamp_min, p->clamp_max);
    const Rescale by = {neutron_words(count * p->input_zero_point), neutron_words(p->weight), neutron_result_words(&result)};
    neutron_sum_vector(pool, point, &by, finish_vector);
}
#endif

NEUTRON_SMALL_RUN void mean_s8_run(const NeutronKernelCall *call) {
    const NeutronMeanS8 *p = call->params;
    neutron_for_each_plane(call, p->input, p->output, mean, NEUTRON_FASTEST(mean));
}
