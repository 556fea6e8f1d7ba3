/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_integer_ops::AveragePool (integer_ops/pooling.h). */
#include "elements_avx2.h"
#include "elements_dsp.h"
#include "pool.h"

bool average_pool_2d_s8_check(const NeutronProgramView *program, const void *params_block,
                              const NeutronWindowExtents *window) {
    const NeutronAveragePool2dS8 *p = params_block;
    /* A sum of this many elements, and half their number, fit 32 bits. */
    return neutron_pool_is_sound(program, p, window, false) && (int64_t)p->kernel_h * p->kernel_w <= 1 << 23;
}

#if NEUTRON_DSP

/* Four channels at a time. */
static void average(const NeutronPool *pool, const NeutronPoolPoint *point) {
    const int32_t count = point->rows * point->cols, half = count / 2;
    const uint32_t low = neutron_four_bytes(pool->clamp_min), high = neutron_four_bytes(pool->clamp_max);
    const int32_t in_pitch = pool->in->channel_pitch, out_pitch = pool->out->channel_pitch;
    for (int32_t done = 0; done < point->channels; done += 4) {
        int32_t x[4];
        neutron_sum_dsp(x, pool->in, point->from + (ptrdiff_t)done * in_pitch, point->first_row, point->rows, point->cols,
                        point->channels - done);
        NEUTRON_UNROLL
        for (int i = 0; i < 4; i++) x[i] = (x[i] > 0 ? x[i] + half : x[i] - half) / count;
        const uint32_t word =
            neutron_min_bytes(neutron_max_bytes(neutron_stored_word(x[0], x[1], x[2], x[3]), low), high);
        uint8_t *to = point->to + (ptrdiff_t)done * out_pitch;
        neutron_store_four_dsp(to, out_pitch, word, point->channels - done);
    }
}

void average_pool_2d_s8_run(const NeutronKernelCall *call) { neutron_for_each_point(call, average); }

#else

/* Channels from `done` on, by blocks of this size. */
static NEUTRON_INLINE int32_t average_blocks(const NeutronPool *pool, const NeutronPoolPoint *point, int32_t done,
                                             const int32_t size) {
    const int32_t count = point->rows * point->cols;
    for (; done <= point->channels - size; done += size) {
        int32_t sums[NEUTRON_BLOCK] = {0};
        int8_t block[NEUTRON_BLOCK];
        const uint8_t *row = point->from + (ptrdiff_t)done * pool->in->channel_pitch;
        for (int32_t r = 0; r < point->rows; r++) {
            for (int32_t c = 0; c < point->cols; c++) {
                neutron_load_block(block, row + (ptrdiff_t)c * pool->in->col_pitch, pool->in->channel_pitch, size);
                for (int32_t i = 0; i < size; i++) sums[i] += block[i];
            }
            row += neutron_pool_next_row(pool, point->first_row + r);
        }
        for (int32_t i = 0; i < size; i++) {
            const int32_t nudged = sums[i] > 0 ? sums[i] + count / 2 : sums[i] - count / 2;
            block[i] = (int8_t)neutron_bound(nudged / count, pool->clamp_min, pool->clamp_max);
        }
        neutron_store_block(point->to + (ptrdiff_t)done * pool->out->channel_pitch, pool->out->channel_pitch, block,
                            size);
    }
    return done;
}

static void average(const NeutronPool *pool, const NeutronPoolPoint *point) {
    const int32_t done = NEUTRON_BLOCK > 1 ? average_blocks(pool, point, 0, NEUTRON_BLOCK) : 0;
    average_blocks(pool, point, done, 1);
}

#ifdef NEUTRON_AVX2
/* Largest count whose reciprocal with 24 fractional bits, rounded up, gives every quotient: the numerator is below 129.5
 * times the count, its error below the count times 2^-24, and 129.5 * 255^2 is below 2^24. */
enum { MOST_BY_RECIPROCAL = 255 };

/* Sums of 8 or 32 channels. */
NEUTRON_AVX2_INLINE void sum_avx2(const NeutronPool *pool, const NeutronPoolPoint *point, int32_t done, __m256i *sums,
                                  const int32_t vectors) {
    for (int32_t i = 0; i < vectors; i++) sums[i] = _mm256_setzero_si256();
    const uint8_t *row = point->from + done;
    for (int32_t r = 0; r < point->rows; r++) {
        for (int32_t c = 0; c < point->cols; c++) {
            const uint8_t *from = row + (ptrdiff_t)c * pool->in->col_pitch;
            for (int32_t i = 0; i < vectors; i++) {
                sums[i] = _mm256_add_epi32(sums[i], neutron_widened(from + (ptrdiff_t)i * 8));
            }
        }
        row += neutron_pool_next_row(pool, point->first_row + r);
    }
}

NEUTRON_AVX2 static void average_avx2(const NeutronPool *pool, const NeutronPoolPoint *point) {
    const int32_t count = point->rows * point->cols;
    if (pool->in->channel_pitch != 1 || pool->out->channel_pitch != 1 || count > MOST_BY_RECIPROCAL) {
        average(pool, point);
        return;
    }
    const __m256i half = _mm256_set1_epi32(count / 2), reciprocal = _mm256_set1_epi32((1 << 24) / count + 1);
    const __m256i low = _mm256_set1_epi32(pool->clamp_min), high = _mm256_set1_epi32(pool->clamp_max);
    int32_t done = 0;
    while (done <= point->channels - 8) {
        __m256i sums[4];
        const int32_t vectors = done <= point->channels - 32 ? 4 : 1;
        if (vectors == 4) {
            sum_avx2(pool, point, done, sums, 4);
        } else {
            sum_avx2(pool, point, done, sums, 1);
        }
        for (int32_t i = 0; i < vectors; i++) {
            const __m256i nudged = _mm256_add_epi32(_mm256_abs_epi32(sums[i]), half);
            const __m256i quotient = _mm256_srli_epi32(_mm256_mullo_epi32(nudged, reciprocal), 24);
            const __m256i rounded = _mm256_sign_epi32(quotient, sums[i]);
            neutron_store_narrowed(point->to + done + (ptrdiff_t)i * 8, neutron_bound_avx2(rounded, low, high));
        }
        done += vectors * 8;
    }
    average_blocks(pool, point, done, 1);
}
#endif

void average_pool_2d_s8_run(const NeutronKernelCall *call) {
    NeutronPoolRun run = average;
#ifdef NEUTRON_AVX2
    if (neutron_has_avx2()) run = average_avx2;
#endif
    neutron_for_each_point(call, run);
}

#endif
