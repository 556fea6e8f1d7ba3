/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_integer_ops::MaxPool (integer_ops/pooling.h). */
#include "elements_avx2.h"
#include "elements_dsp.h"
#include "pool.h"

bool max_pool_2d_s8_check(const NeutronProgramView *program, const void *params_block,
                          const NeutronWindowExtents *window) {
    return neutron_pool_is_sound(program, params_block, window, true);
}

#if NEUTRON_DSP

/* Four channels at a time. */
static void max(const NeutronPool *pool, const NeutronPoolPoint *point) {
    const uint32_t low = neutron_four_bytes(pool->clamp_min), high = neutron_four_bytes(pool->clamp_max);
    const int32_t in_pitch = pool->in->channel_pitch, out_pitch = pool->out->channel_pitch;
    const int32_t rows = point->cols > 0 ? point->rows : 0;
    for (int32_t done = 0; done < point->channels; done += 4) {
        const int32_t left = point->channels - done;
        const bool whole = left >= 4 && in_pitch == 1;
        const uint8_t *row = rows > 0 ? point->from + (ptrdiff_t)done * in_pitch : NULL;
        uint32_t largest = low;
        for (int32_t r = 0; r < rows; r++) {
            const uint8_t *from = row;
            for (int32_t c = point->cols; c > 0; c--, from += pool->in->col_pitch) {
                const uint32_t word = whole ? neutron_load_word(from) : neutron_load_some_dsp(from, in_pitch, left);
                largest = neutron_max_bytes(largest, word);
            }
            row += neutron_pool_next_row(pool, point->first_row + r);
        }
        largest = neutron_min_bytes(largest, high);
        uint8_t *to = point->to + (ptrdiff_t)done * out_pitch;
        neutron_store_four_dsp(to, out_pitch, largest, left);
    }
}

void max_pool_2d_s8_run(const NeutronKernelCall *call) { neutron_for_each_point(call, max); }

#else

/* Channels from `done` on, by blocks of this size. */
static NEUTRON_INLINE int32_t max_blocks(const NeutronPool *pool, const NeutronPoolPoint *point, int32_t done,
                                         const int32_t size) {
    const int8_t low = (int8_t)pool->clamp_min, high = (int8_t)pool->clamp_max;
    const int32_t rows = point->cols > 0 ? point->rows : 0;
    for (; done <= point->channels - size; done += size) {
        int8_t largest[NEUTRON_BLOCK], block[NEUTRON_BLOCK];
        for (int32_t i = 0; i < size; i++) largest[i] = low;
        const uint8_t *row = point->cols > 0 ? point->from + (ptrdiff_t)done * pool->in->channel_pitch : NULL;
        for (int32_t r = 0; r < rows; r++) {
            for (int32_t c = 0; c < point->cols; c++) {
                neutron_load_block(block, row + (ptrdiff_t)c * pool->in->col_pitch, pool->in->channel_pitch, size);
                for (int32_t i = 0; i < size; i++) largest[i] = block[i] > largest[i] ? block[i] : largest[i];
            }
            row += neutron_pool_next_row(pool, point->first_row + r);
        }
        for (int32_t i = 0; i < size; i++) largest[i] = largest[i] > high ? high : largest[i];
        neutron_store_block(point->to + (ptrdiff_t)done * pool->out->channel_pitch, pool->out->channel_pitch, largest,
                            size);
    }
    return done;
}

static void max(const NeutronPool *pool, const NeutronPoolPoint *point) {
    const int32_t done = NEUTRON_BLOCK > 1 ? max_blocks(pool, point, 0, NEUTRON_BLOCK) : 0;
    max_blocks(pool, point, done, 1);
}

#ifdef NEUTRON_AVX2
NEUTRON_AVX2 static void max_avx2(const NeutronPool *pool, const NeutronPoolPoint *point) {
    if (pool->in->channel_pitch != 1 || pool->out->channel_pitch != 1 || point->cols == 0) {
        max(pool, point);
        return;
    }
    const __m256i low = _mm256_set1_epi8((char)pool->clamp_min), high = _mm256_set1_epi8((char)pool->clamp_max);
    int32_t done = 0;
    for (; done <= point->channels - 32; done += 32) {
        __m256i largest = low;
        const uint8_t *row = point->from + done;
        for (int32_t r = 0; r < point->rows; r++) {
            for (int32_t c = 0; c < point->cols; c++) {
                const void *from = row + (ptrdiff_t)c * pool->in->col_pitch;
                largest = _mm256_max_epi8(largest, _mm256_loadu_si256(from));
            }
            row += neutron_pool_next_row(pool, point->first_row + r);
        }
        _mm256_storeu_si256((void *)(point->to + done), _mm256_min_epi8(largest, high));
    }
    for (; done <= point->channels - 8; done += 8) {
        __m128i largest = _mm256_castsi256_si128(low);
        const uint8_t *row = point->from + done;
        for (int32_t r = 0; r < point->rows; r++) {
            for (int32_t c = 0; c < point->cols; c++) {
                const void *from = row + (ptrdiff_t)c * pool->in->col_pitch;
                largest = _mm_max_epi8(largest, _mm_loadl_epi64(from));
            }
            row += neutron_pool_next_row(pool, point->first_row + r);
        }
        _mm_storel_epi64((void *)(point->to + done), _mm_min_epi8(largest, _mm256_castsi256_si128(high)));
    }
    max_blocks(pool, point, done, 1);
}
#endif

void max_pool_2d_s8_run(const NeutronKernelCall *call) {
    NeutronPoolRun run = max;
#ifdef NEUTRON_AVX2
    if (neutron_has_avx2()) run = max_avx2;
#endif
    neutron_for_each_point(call, run);
}

#endif
