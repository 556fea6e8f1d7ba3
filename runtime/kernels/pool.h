/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows of pools and planes that become one element: the largest or the sum of their elements, int8 or int16. */
#ifndef NEUTRON_POOL_H
#define NEUTRON_POOL_H

#include "elements_16.h"
#include "elements_dsp.h"
#include "vector.h"

/* The elements of an input axis that one output position takes; none where end <= first. */
typedef struct {
    int32_t first, end;
} NeutronTaps;

/* Largest kernel, stride and padding of one axis: sums of them and a position stay inside 32 bits. */
enum { NEUTRON_POOL_MAX = 1 << 15 };

/* For positions that neutron_pool_axis_is_sound has accepted. */
static inline NeutronTaps neutron_taps(int32_t position, int32_t kernel, int32_t stride, int32_t pad, int32_t extent) {
    const int32_t origin = position * stride - pad;
    return (NeutronTaps){origin > 0 ? origin : 0, origin >= extent - kernel ? extent : origin + kernel};
}

/* Output positions [first, end), of which there is one, can be computed; unless `empty` is allowed, all have a tap. */
static inline bool neutron_pool_axis_is_sound(int32_t first, int32_t end, int32_t kernel, int32_t stride, int32_t pad,
                                              int32_t extent, bool empty) {
    if (kernel < 1 || kernel > NEUTRON_POOL_MAX || stride < 1 || stride > NEUTRON_POOL_MAX) return false;
    if (pad < 0 || pad > NEUTRON_POOL_MAX) return false;
    const int64_t last = (int64_t)(end - 1) * stride;
    if (last > INT32_MAX - NEUTRON_POOL_MAX) return false;
    return empty || ((int64_t)first * stride - pad + kernel > 0 && last - pad < extent);
}

/* `empty`: a window that lies in the padding alone is allowed. */
static inline bool neutron_pool_is_sound(const NeutronProgramView *program, const NeutronAveragePool2dS8 *p,
                                         const NeutronWindowExtents *w, bool empty) {
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    if (in == NULL || neutron_window_buffer(program, p->output, true, w) == NULL || w->batch1 > in->batches) return false;
    if (!neutron_pool_axis_is_sound(w->row0, w->row1, p->kernel_h, p->stride_h, p->pad_top, in->rows, empty) ||
        !neutron_pool_axis_is_sound(w->col0, w->col1, p->kernel_w, p->stride_w, p->pad_left, in->cols, empty) ||
        !neutron_bounds_are_sound(p->clamp_min, p->clamp_max)) {
        return false;
    }
    const int32_t first = neutron_taps(w->col0, p->kernel_w, p->stride_w, p->pad_left, in->cols).first;
    const int32_t end = neutron_taps(w->col1 - 1, p->kernel_w, p->stride_w, p->pad_left, in->cols).end;
    return neutron_buffer_holds(in, first, end, w->channel0, w->channel1);
}

/* One output element: the input elements it takes, and where its channels go. */
typedef struct {
    const uint8_t *from; /* the first element it takes, in the window's first channel; anything where it takes none */
    uint8_t *to;
    int32_t rows, cols; /* taps; none where there is no row */
    int32_t place; /* of the first row in the input's ring */
    int32_t channels;
} NeutronPoolPoint;

/* The facts that all elements of a call share. */
typedef struct {
    const NeutronBuffer *in, *out;
    const void *params;
} NeutronPool;

typedef void (*NeutronPoolRun)(const NeutronPool *pool, const NeutronPoolPoint *point);

/* The address of the next row of taps, which may be the first of a ring. place: the row's in the ring. */
static NEUTRON_INLINE const uint8_t *neutron_next_row(const NeutronPool *pool, const uint8_t *row, int32_t *place) {
    row += pool->in->row_pitch;
    if (++*place < pool->in->ring) return row;
    *place = 0;
    return row - (ptrdiff_t)pool->in->ring * pool->in->row_pitch;
}

/* Channels side by side, and as many as a vector of them takes. */
static inline bool neutron_takes_vectors(const NeutronPool *pool, const NeutronWindowExtents *w) {
    return pool->in->channel_pitch == 1 && pool->out->channel_pitch == 1 && w->channel1 - w->channel0 >= 8;
}

/* run() for each output element of the window. */
static NEUTRON_INLINE void neutron_run_points(const NeutronKernelCall *call, const NeutronPool *pool, NeutronPoolRun run) {
    const NeutronAveragePool2dS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    NeutronPoolPoint point = {.channels = w->channel1 - w->channel0};
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        const NeutronTaps rows = neutron_taps(r, p->kernel_h, p->stride_h, p->pad_top, pool->in->rows);
        point.place = rows.first % pool->in->ring;
        const bool any_row = rows.end > rows.first;
        /* Where there is no tap, no address is made. */
        const uint8_t *from =
            any_row ? neutron_element_address(call->bases, pool->in, n, rows.first, 0, w->channel0) : NULL;
        point.to = neutron_element_address(call->bases, pool->out, n, r, w->col0, w->channel0);
        for (int32_t c = w->col0; c < w->col1; c++) {
            const NeutronTaps cols = neutron_taps(c, p->kernel_w, p->stride_w, p->pad_left, pool->in->cols);
            const bool any = any_row && cols.end > cols.first;
            point.rows = any ? rows.end - rows.first : 0;
            point.cols = cols.end - cols.first;
            point.from = any ? from + (ptrdiff_t)cols.first * pool->in->col_pitch : point.to;
            run(pool, &point);
            point.to += pool->out->col_pitch;
        }
    }
}

/* vectors() for each output element if it takes the call, else run(). */
static NEUTRON_INLINE void neutron_for_each_point(const NeutronKernelCall *call, NeutronPoolRun run,
                                                  NeutronPoolRun vectors) {
    const NeutronAveragePool2dS8 *p = call->params;
    const NeutronPool pool = {&call->buffers[p->input], &call->buffers[p->output], p};
    if (vectors != run && neutron_takes_vectors(&pool, &call->window)) {
        neutron_run_points(call, &pool, vectors);
    } else {
        neutron_run_points(call, &pool, run);
    }
}

/* ---- whole planes --------------------------------------------------------------------------------------------------- */

/* The output has one row and one column, and the input all that the window takes. */
static inline bool neutron_plane_is_sound(const NeutronProgramView *program, uint32_t input, uint32_t output,
                                          const NeutronWindowExtents *window) {
    const NeutronBuffer *in = neutron_checked_buffer(program, input, false);
    const NeutronBuffer *out = neutron_window_buffer(program, output, true, window);
    return in != NULL && out != NULL && out->rows == 1 && out->cols == 1 && window->batch1 <= in->batches &&
           neutron_buffer_holds(in, 0, in->cols, window->channel0, window->channel1);
}

/* run() for each batch, whose one output element takes all rows and columns. */
static NEUTRON_INLINE void neutron_for_each_plane(const NeutronKernelCall *call, uint32_t input, uint32_t output,
                                          NeutronPoolRun run, NeutronPoolRun vectors) {
    const NeutronWindowExtents *w = &call->window;
    const NeutronPool pool = {&call->buffers[input], &call->buffers[output], call->params};
    if (vectors != run && neutron_takes_vectors(&pool, w)) run = vectors;
    NeutronPoolPoint point = {.rows = pool.in->rows, .cols = pool.in->cols, .channels = w->channel1 - w->channel0};
    for (int32_t n = w->batch0; n < w->batch1; n++) {
        point.from = neutron_element_address(call->bases, pool.in, n, 0, 0, w->channel0);
        point.to = neutron_element_address(call->bases, pool.out, n, 0, 0, w->channel0);
        run(&pool, &point);
    }
}

/* ---- the largest value ---------------------------------------------------------------------------------------------- */

/* neutron_largest: the largest of `low` and an element's taps, each with the bits of `turned` turned; the same bits of the
 * result are turned back, and the result is at most `high`. */
#if NEUTRON_DSP && !NEUTRON_VECTORS

/* Four channels at a time. */
static NEUTRON_INLINE void neutron_largest(const NeutronPool *pool, const NeutronPoolPoint *point, int32_t least,
                                           int32_t most, const int32_t mask) {
    const uint32_t low = neutron_four_bytes(least), high = neutron_four_bytes(most), turned = neutron_four_bytes(mask);
    const int32_t in_pitch = pool->in->channel_pitch, out_pitch = pool->out->channel_pitch;
    for (int32_t done = 0; done < point->channels; done += 4) {
        const int32_t left = point->channels - done;
        const bool whole = left >= 4 && in_pitch == 1;
        const uint8_t *row = point->from + (ptrdiff_t)done * in_pitch;
        uint32_t largest = low;
        for (int32_t r = 0, place = point->place; r < point->rows; r++) {
            const uint8_t *from = row;
            for (int32_t c = point->cols; c > 0; c--, from += pool->in->col_pitch) {
                const uint32_t word = whole ? neutron_load_word(from) : neutron_load_some_dsp(from, in_pitch, left);
                largest = neutron_max_bytes(largest, word ^ turned);
            }
            row = neutron_next_row(pool, row, &place);
        }
        largest = neutron_min_bytes(largest ^ turned, high);
        neutron_store_four_dsp(point->to + (ptrdiff_t)done * out_pitch, out_pitch, largest, left);
    }
}

#else

/* Channels from `done` on, by blocks of this size. */
static NEUTRON_INLINE int32_t neutron_largest_blocks(const NeutronPool *pool, const NeutronPoolPoint *point, int32_t done,
                                                     int32_t low, int32_t high, const int32_t turned,
                                                     const int32_t size) {
    const int8_t least = (int8_t)low, most = (int8_t)high;
    for (; done <= point->channels - size; done += size) {
        int8_t largest[NEUTRON_BLOCK], block[NEUTRON_BLOCK];
        for (int32_t i = 0; i < size; i++) largest[i] = least;
        const uint8_t *row = point->from + (ptrdiff_t)done * pool->in->channel_pitch;
        for (int32_t r = 0, place = point->place; r < point->rows; r++) {
            for (int32_t c = 0; c < point->cols; c++) {
                neutron_load_block(block, row + (ptrdiff_t)c * pool->in->col_pitch, pool->in->channel_pitch, size);
                for (int32_t i = 0; i < size; i++) block[i] = (int8_t)(block[i] ^ turned);
                for (int32_t i = 0; i < size; i++) largest[i] = block[i] > largest[i] ? block[i] : largest[i];
            }
            row = neutron_next_row(pool, row, &place);
        }
        for (int32_t i = 0; i < size; i++) largest[i] = (int8_t)(largest[i] ^ turned);
        for (int32_t i = 0; i < size; i++) largest[i] = largest[i] > most ? most : largest[i];
        neutron_store_block(point->to + (ptrdiff_t)done * pool->out->channel_pitch, pool->out->channel_pitch, largest,
                            size);
    }
    return done;
}

static NEUTRON_INLINE void neutron_largest(const NeutronPool *pool, const NeutronPoolPoint *point, int32_t low,
                                           int32_t high, const int32_t turned) {
    const int32_t done =
        NEUTRON_BLOCK > 1 ? neutron_largest_blocks(pool, point, 0, low, high, turned, NEUTRON_BLOCK) : 0;
    neutron_largest_blocks(pool, point, done, low, high, turned, 1);
}

#if NEUTRON_VECTORS
/* The largest values of `count` channels, at most NEUTRON_BYTES, from channel `done` on. */
NEUTRON_VECTOR_INLINE void neutron_largest_of_taps(const NeutronPool *pool, const NeutronPoolPoint *point, int32_t done,
                                                   NeutronBytes low, NeutronBytes high, NeutronBytes turned, int32_t count) {
    const uint8_t *row = point->from + done;
    NeutronBytes largest = low;
    for (int32_t r = 0, place = point->place; r < point->rows; r++) {
        for (int32_t c = 0; c < point->cols; c++) {
            const NeutronBytes x = neutron_load_bytes(row + (ptrdiff_t)c * pool->in->col_pitch, count);
            largest = neutron_larger_bytes(largest, x ^ turned);
        }
        row = neutron_next_row(pool, row, &place);
    }
    neutron_store_bytes(point->to + done, neutron_smaller_bytes(largest ^ turned, high), count);
}

NEUTRON_VECTOR_INLINE void neutron_largest_vector(const NeutronPool *pool, const NeutronPoolPoint *point, int32_t least,
                                                  int32_t most, const int32_t mask) {
    const NeutronBytes low = neutron_bytes(least), high = neutron_bytes(most), turned = neutron_bytes(mask);
    int32_t done = 0;
    for (; done <= point->channels - NEUTRON_BYTES; done += NEUTRON_BYTES) {
        neutron_largest_of_taps(pool, point, done, low, high, turned, NEUTRON_BYTES);
    }
    for (; done <= point->channels - NEUTRON_FEW_BYTES; done += NEUTRON_FEW_BYTES) {
        neutron_largest_of_taps(pool, point, done, low, high, turned, NEUTRON_FEW_BYTES);
    }
    if (done < point->channels) {
        neutron_largest_of_taps(pool, point, done, low, high, turned, point->channels - done);
    }
}
#endif

#endif

/* ---- sums and other functions of all taps ------------------------------------------------------------------------------ */

/* The taps of a point's channels, by blocks of this size, to 32-bit numbers. */
typedef void (*NeutronTakeTaps)(int32_t *numbers, const int16_t *taps, int32_t size);

/* Converts the numbers of the taps to stored values. */
typedef void (*NeutronFinish)(const NeutronPool *pool, const NeutronPoolPoint *point, const int32_t *numbers,
                              int16_t *stored, int32_t size);

/* Channels from `done` on, by blocks of this size, of numbers that begin with `start`. */
static NEUTRON_INLINE int32_t neutron_point_blocks(const NeutronPool *pool, const NeutronPoolPoint *point, int32_t done,
                                                   int32_t start, NeutronTakeTaps take, NeutronFinish finish,
                                                   const int32_t element_bytes, const int32_t size) {
    const int32_t in_pitch = pool->in->channel_pitch, out_pitch = pool->out->channel_pitch;
    for (; done <= point->channels - size; done += size) {
        int32_t numbers[NEUTRON_BLOCK];
        int16_t block[NEUTRON_BLOCK];
        for (int32_t i = 0; i < size; i++) numbers[i] = start;
        const uint8_t *row = point->from + (ptrdiff_t)done * in_pitch;
        for (int32_t r = 0, place = point->place; r < point->rows; r++) {
            for (int32_t c = 0; c < point->cols; c++) {
                neutron_load_block_of(block, row + (ptrdiff_t)c * pool->in->col_pitch, in_pitch, size, element_bytes);
                take(numbers, block, size);
            }
            row = neutron_next_row(pool, row, &place);
        }
        finish(pool, point, numbers, block, size);
        neutron_store_block_of(point->to + (ptrdiff_t)done * out_pitch, out_pitch, block, size, element_bytes);
    }
    return done;
}

static NEUTRON_INLINE void neutron_point(const NeutronPool *pool, const NeutronPoolPoint *point, int32_t start,
                                         NeutronTakeTaps take, NeutronFinish finish, const int32_t element_bytes) {
    const int32_t done =
        NEUTRON_BLOCK > 1 ? neutron_point_blocks(pool, point, 0, start, take, finish, element_bytes, NEUTRON_BLOCK) : 0;
    neutron_point_blocks(pool, point, done, start, take, finish, element_bytes, 1);
}

/* name(), the NeutronPoolRun of int16 elements, and name_vector(). */
#define NEUTRON_DEFINE_POINT_16(name, start, take, finish)                                                     \
    static NEUTRON_INLINE void name(const NeutronPool *pool, const NeutronPoolPoint *point) {                  \
        neutron_point(pool, point, start, take, finish, 2);                                                    \
    }                                                                                                          \
    NEUTRON_FOR_VECTORS(name, (const NeutronPool *pool, const NeutronPoolPoint *point), (pool, point))

static NEUTRON_INLINE void neutron_add_taps(int32_t *numbers, const int16_t *taps, int32_t size) {
    for (int32_t i = 0; i < size; i++) numbers[i] += taps[i];
}

static NEUTRON_INLINE void neutron_largest_taps(int32_t *numbers, const int16_t *taps, int32_t size) {
    for (int32_t i = 0; i < size; i++) numbers[i] = taps[i] > numbers[i] ? taps[i] : numbers[i];
}

static NEUTRON_INLINE void neutron_smallest_taps(int32_t *numbers, const int16_t *taps, int32_t size) {
    for (int32_t i = 0; i < size; i++) numbers[i] = taps[i] < numbers[i] ? taps[i] : numbers[i];
}

/* Sums of int8. */
static NEUTRON_INLINE void neutron_sum(const NeutronPool *pool, const NeutronPoolPoint *point, NeutronFinish finish) {
#if NEUTRON_DSP && !NEUTRON_VECTORS
    /* Four channels at a time. */
    const uint8_t *from = point->from;
    uint8_t *to = point->to;
    for (int32_t left = point->channels; left > 0; left -= 4) {
        int32_t sums[4];
        neutron_sum_dsp(sums, pool->in, from, point->place, point->rows, point->cols, left);
        for (int32_t i = 0; i < 4 && i < left; i++, to += pool->out->channel_pitch) {
            int16_t stored;
            finish(pool, point, &sums[i], &stored, 1);
            *to = (uint8_t)stored;
        }
        from += 4 * (ptrdiff_t)pool->in->channel_pitch;
    }
#else
    neutron_point(pool, point, 0, neutron_add_taps, finish, 1);
#endif
}

#if NEUTRON_VECTORS
/* Stores the results for `steps` steps of channels, of which `count` are left: `sums` has their parts. */
typedef void (*NeutronFinishSums)(const void *numbers, uint8_t *to, NeutronWords *sums, const int32_t steps, int32_t count);

enum { NEUTRON_MOST_STEPS = 4 };

/* finish() for the sums of `steps` steps of channels from channel `done` on. */
NEUTRON_VECTOR_INLINE void neutron_sum_of_taps(const NeutronPool *pool, const NeutronPoolPoint *point, int32_t done,
                                               const void *numbers, NeutronFinishSums finish, const int32_t steps,
                                               int32_t count) {
    NeutronWords sums[NEUTRON_MOST_STEPS * NEUTRON_PARTS], x[NEUTRON_PARTS];
    NEUTRON_UNROLL
    for (int i = 0; i < steps * NEUTRON_PARTS; i++) sums[i] = neutron_words(0);
    const uint8_t *row = point->from + done;
    for (int32_t r = 0, place = point->place; r < point->rows; r++) {
        for (int32_t c = 0; c < point->cols; c++) {
            const uint8_t *from = row + (ptrdiff_t)c * pool->in->col_pitch;
            NEUTRON_UNROLL
            for (int i = 0; i < steps; i++) {
                neutron_load_words_8(x, from + (ptrdiff_t)i * NEUTRON_STEP, count - i * NEUTRON_STEP);
                NEUTRON_UNROLL
                for (int j = 0; j < NEUTRON_PARTS; j++) sums[i * NEUTRON_PARTS + j] += x[j];
            }
        }
        row = neutron_next_row(pool, row, &place);
    }
    finish(numbers, point->to + done, sums, steps, count);
}

/* finish() for the sums of all channels. */
NEUTRON_VECTOR_INLINE void neutron_sum_vector(const NeutronPool *pool, const NeutronPoolPoint *point, const void *numbers,
                                              NeutronFinishSums finish) {
    const int32_t most = NEUTRON_MOST_STEPS * NEUTRON_STEP;
    int32_t done = 0;
    for (; done <= point->channels - most; done += most) {
        neutron_sum_of_taps(pool, point, done, numbers, finish, NEUTRON_MOST_STEPS, most);
    }
    for (; done <= point->channels - NEUTRON_STEP; done += NEUTRON_STEP) {
        neutron_sum_of_taps(pool, point, done, numbers, finish, 1, NEUTRON_STEP);
    }
    if (done < point->channels) neutron_sum_of_taps(pool, point, done, numbers, finish, 1, point->channels - done);
}
#endif

/* ---- checks of int16 ------------------------------------------------------------------------------------------------- */

/* Largest number of elements whose sum, and half their number, fit 32 bits. */
enum { NEUTRON_MOST_ADDED_16 = 65534 };

/* Blocks of both types have the same words, so that pool.h goes through these windows too. */
NEUTRON_STATIC_ASSERT(sizeof(NeutronAveragePool2dS16) == sizeof(NeutronAveragePool2dS8), "the same words");

/* `empty`: a window that lies in the padding alone is allowed. */
static inline bool neutron_pool_16_is_sound(const NeutronProgramView *program, const NeutronAveragePool2dS16 *p,
                                            const NeutronWindowExtents *w, bool empty) {
    NeutronAveragePool2dS8 bytes;
    memcpy(&bytes, p, sizeof bytes);
    bytes.clamp_min = bytes.clamp_max = 0;
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

#endif
