/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_integer_ops::AveragePool (integer_ops/pooling.h). */
#include "pool.h"

bool average_pool_2d_s8_check(const NeutronProgramView *program, const void *params_block,
                              const NeutronWindowExtents *window) {
    const NeutronAveragePool2dS8 *p = params_block;
    /* A sum of this many elements, and half their number, fit 32 bits. */
    return neutron_pool_is_sound(program, p, window, false) && (int64_t)p->kernel_h * p->kernel_w <= 1 << 23;
}

#if NEUTRON_DSP && !NEUTRON_VECTORS

/* Four channels at a time. */
static void average(const NeutronPool *pool, const NeutronPoolPoint *point) {
    const NeutronAveragePool2dS8 *p = pool->params;
    const int32_t count = point->rows * point->cols, half = count / 2;
    const uint32_t low = neutron_four_bytes(p->clamp_min), high = neutron_four_bytes(p->clamp_max);
    const int32_t in_pitch = pool->in->channel_pitch, out_pitch = pool->out->channel_pitch;
    for (int32_t done = 0; done < point->channels; done += 4) {
        int32_t x[4];
        neutron_sum_dsp(x, pool->in, point->from + (ptrdiff_t)done * in_pitch, point->place, point->rows, point->cols,
                        point->channels - done);
        NEUTRON_UNROLL
        for (int i = 0; i < 4; i++) x[i] = (x[i] > 0 ? x[i] + half : x[i] - half) / count;
        const uint32_t word =
            neutron_min_bytes(neutron_max_bytes(neutron_stored_word(x[0], x[1], x[2], x[3]), low), high);
        uint8_t *to = point->to + (ptrdiff_t)done * out_pitch;
        neutron_store_four_dsp(to, out_pitch, word, point->channels - done);
    }
}

#else

static NEUTRON_INLINE void finish(const NeutronPool *pool, const NeutronPoolPoint *point, const int32_t *sums,
                                  int16_t *stored, int32_t size) {
    const NeutronAveragePool2dS8 *p = pool->params;
    const int32_t count = point->rows * point->cols;
    for (int32_t i = 0; i < size; i++) {
        const int32_t nudged = sums[i] > 0 ? sums[i] + count / 2 : sums[i] - count / 2;
        stored[i] = (int16_t)neutron_bound(nudged / count, p->clamp_min, p->clamp_max);
    }
}

static NEUTRON_INLINE void average(const NeutronPool *pool, const NeutronPoolPoint *point) {
    neutron_sum(pool, point, finish);
}

#if NEUTRON_VECTORS
/* Largest count whose reciprocal with 24 fractional bits, rounded up, gives every quotient: the numerator is below 129.5
 * times the count, its error below the count times 2^-24, and 129.5 * 255^2 is below 2^24. */
enum { MOST_BY_RECIPROCAL = 255 };

typedef struct {
    NeutronWords half, low, high;
    NeutronUnsignedWords reciprocal;
} Quotient;

NEUTRON_VECTOR_INLINE void finish_vector(const void *numbers, uint8_t *to, NeutronWords *sums, const int32_t steps,
                                         int32_t count) {
    const Quotient *by = numbers;
    NEUTRON_UNROLL
    for (int i = 0; i < steps * NEUTRON_PARTS; i++) {
        const NeutronWords sign = sums[i] >> 31, nudged = neutron_magnitude_words(sums[i]) + by->half;
        const NeutronWords quotient = (NeutronWords)((NeutronUnsignedWords)nudged * by->reciprocal >> 24);
        sums[i] = neutron_bound_words((quotient ^ sign) - sign, by->low, by->high);
    }
    NEUTRON_UNROLL
    for (int i = 0; i < steps; i++) {
        neutron_store_words_8(to + (ptrdiff_t)i * NEUTRON_STEP, sums + i * NEUTRON_PARTS, count - i * NEUTRON_STEP);
    }
}

NEUTRON_VECTOR static void average_vector(const NeutronPool *pool, const NeutronPoolPoint *point) {
    const NeutronAveragePool2dS8 *p = pool->params;
    const int32_t count = point->rows * point->cols;
    if (count > MOST_BY_RECIPROCAL) {
        average(pool, point);
        return;
    }
    const Quotient by = {
        .half = neutron_words(count / 2),
        .low = neutron_words(p->clamp_min),
        .high = neutron_words(p->clamp_max),
        .reciprocal = (NeutronUnsignedWords)neutron_words((1 << 24) / count + 1),
    };
    neutron_sum_vector(pool, point, &by, finish_vector);
}
#endif

#endif

NEUTRON_SMALL_RUN void average_pool_2d_s8_run(const NeutronKernelCall *call) { neutron_for_each_point(call, average, NEUTRON_FASTEST(average)); }
