/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows of pools and planes of int16 elements: the largest or the sum of the elements in one. */
#ifndef NEUTRON_POOL_16_H
#define NEUTRON_POOL_16_H

#include "elements_16.h"
#include "pool.h"

/* Largest number of elements whose sum, and half their number, fit 32 bits. */
enum { NEUTRON_MOST_ADDED_16 = 65534 };

/* Blocks of both types have the same words, so that pool.h goes through these windows too. */
_Static_assert(sizeof(NeutronAveragePool2dS16) == sizeof(NeutronAveragePool2dS8), "the same words");

/* `empty`: a window that lies in the padding alone is allowed. */
static inline bool neutron_pool_16_is_sound(const NeutronProgramView *program, const NeutronAveragePool2dS16 *p,
                                            const NeutronWindowExtents *w, bool empty) {
    const NeutronAveragePool2dS8 bytes = {
        .input = p->input,
        .output = p->output,
        .kernel_h = p->kernel_h,
        .kernel_w = p->kernel_w,
        .stride_h = p->stride_h,
        .stride_w = p->stride_w,
        .pad_top = p->pad_top,
        .pad_left = p->pad_left,
    };
    return neutron_pool_is_sound(program, &bytes, w, empty) &&
           neutron_elements_are_sound(program, neutron_checked_buffer(program, p->input, false), false, 2) &&
           neutron_window_elements(program, p->output, true, w, 2) != NULL &&
           neutron_bounds_are_sound_16(p->clamp_min, p->clamp_max);
}

static inline bool neutron_plane_16_is_sound(const NeutronProgramView *program, uint32_t input, uint32_t output,
                                             const NeutronWindowExtents *w) {
    return neutron_plane_is_sound(program, input, output, w) &&
           neutron_elements_are_sound(program, neutron_checked_buffer(program, input, false), false, 2) &&
           neutron_window_elements(program, output, true, w, 2) != NULL;
}

/* The taps of a point's channels from `done` on, by blocks of this size, to 32-bit numbers that begin with `start`. */
typedef void (*NeutronTakeTaps16)(int32_t *numbers, const int16_t *taps, int32_t size);

/* Those numbers to stored values. */
typedef void (*NeutronFinish16)(const NeutronPool *pool, const NeutronPoolPoint *point, const int32_t *numbers,
                                int16_t *stored, int32_t size);

static NEUTRON_INLINE int32_t neutron_blocks_of_points_16(const NeutronPool *pool, const NeutronPoolPoint *point,
                                                          int32_t done, int32_t start, NeutronTakeTaps16 take,
                                                          NeutronFinish16 finish, const int32_t size) {
    const int32_t in_pitch = pool->in->channel_pitch, out_pitch = pool->out->channel_pitch;
    for (; done <= point->channels - size; done += size) {
        int32_t numbers[NEUTRON_BLOCK];
        int16_t block[NEUTRON_BLOCK];
        for (int32_t i = 0; i < size; i++) numbers[i] = start;
        const uint8_t *row = point->from + (ptrdiff_t)done * in_pitch;
        for (int32_t r = 0, place = point->place; r < point->rows; r++) {
            for (int32_t c = 0; c < point->cols; c++) {
                neutron_load_block_16(block, row + (ptrdiff_t)c * pool->in->col_pitch, in_pitch, size);
                take(numbers, block, size);
            }
            row = neutron_next_row(pool, row, &place);
        }
        finish(pool, point, numbers, block, size);
        neutron_store_block_16(point->to + (ptrdiff_t)done * out_pitch, out_pitch, block, size);
    }
    return done;
}

static NEUTRON_INLINE void neutron_point_16(const NeutronPool *pool, const NeutronPoolPoint *point, int32_t start,
                                            NeutronTakeTaps16 take, NeutronFinish16 finish) {
    const int32_t done =
        NEUTRON_BLOCK > 1 ? neutron_blocks_of_points_16(pool, point, 0, start, take, finish, NEUTRON_BLOCK) : 0;
    neutron_blocks_of_points_16(pool, point, done, start, take, finish, 1);
}

static NEUTRON_INLINE void neutron_add_16(int32_t *numbers, const int16_t *taps, int32_t size) {
    for (int32_t i = 0; i < size; i++) numbers[i] += taps[i];
}

static NEUTRON_INLINE void neutron_largest_16(int32_t *numbers, const int16_t *taps, int32_t size) {
    for (int32_t i = 0; i < size; i++) numbers[i] = taps[i] > numbers[i] ? taps[i] : numbers[i];
}

static NEUTRON_INLINE void neutron_smallest_16(int32_t *numbers, const int16_t *taps, int32_t size) {
    for (int32_t i = 0; i < size; i++) numbers[i] = taps[i] < numbers[i] ? taps[i] : numbers[i];
}

#endif
