/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows, lines and blocks: the loops of the kernels that go through elements one by one.
 *
 * A line is a run of elements one pitch apart. Kernels work through a line in ascending order, in blocks of 32 or fewer
 * elements: a block is read whole from every input before any of it is written, so that an output may share its input's memory
 * or anywhere before it. The block sizes are constants where they are used, which is what lets a compiler turn each
 * block into vector instructions and needs no promise that buffers don't overlap. */
#ifndef NEUTRON_ELEMENTS_H
#define NEUTRON_ELEMENTS_H

#include <string.h>

#include "kernel.h"

/* Unrolls the loop that follows, of at most 8 rounds, early enough for its arrays to become registers. */
#if defined(__clang__)
#define NEUTRON_UNROLL _Pragma("clang loop unroll(full)")
#else
#define NEUTRON_UNROLL _Pragma("GCC unroll 8")
#endif

/* NEUTRON_VECTORS: vector.h has primitives for this machine. NEUTRON_FOR_VECTORS: name_vector(), which is name() compiled once more
 * where a program finds the instruction set when it runs. NEUTRON_FASTEST: the one of name() and name_vector() that this machine
 * runs. */
#if defined(__x86_64__) && !defined(NEUTRON_PORTABLE_ONLY)
#define NEUTRON_VECTORS 1
#define NEUTRON_VECTOR __attribute__((target("avx2")))
static inline bool neutron_has_vectors(void) { return __builtin_cpu_supports("avx2") != 0; }
#elif (defined(__aarch64__) && defined(__ARM_NEON) || defined(__ARM_FEATURE_MVE)) && !defined(NEUTRON_PORTABLE_ONLY)
#define NEUTRON_VECTORS 1
#define NEUTRON_VECTOR
static inline bool neutron_has_vectors(void) { return true; }
#else
#define NEUTRON_VECTORS 0
#endif

#if NEUTRON_VECTORS
#define NEUTRON_VECTOR_INLINE NEUTRON_VECTOR static NEUTRON_INLINE
#define NEUTRON_FOR_VECTORS(name, parameters, arguments) NEUTRON_VECTOR static void name##_vector parameters { name arguments; }
#define NEUTRON_FASTEST(name) (neutron_has_vectors() ? name##_vector : name)
#else
#define NEUTRON_FOR_VECTORS(name, parameters, arguments)
#define NEUTRON_FASTEST(name) name
#endif

/* Without vector instructions only blocks of one element are compiled. */
#if defined(__SSE2__) || defined(__ARM_NEON) || defined(__ARM_FEATURE_MVE)
enum { NEUTRON_BLOCK = 32 };
#else
enum { NEUTRON_BLOCK = 1 };
#endif

/* ---- for check ---------------------------------------------------------------------------------------------------- */

static inline uint64_t neutron_span(int32_t extent, int32_t pitch) { return (uint64_t)(extent - 1) * (uint64_t)pitch; }

/* The offset of the last element's first byte. Extents are above 0, pitches are not below 0: each span is below 2^62 - 2^32,
 * so that four of them and an offset stay below 2^64. */
static inline uint64_t neutron_last_offset(const NeutronBuffer *buffer) {
    return (uint64_t)buffer->offset + neutron_span(buffer->batches, buffer->batch_pitch) +
           neutron_span(buffer->ring, buffer->row_pitch) + neutron_span(buffer->cols_held, buffer->col_pitch) +
           neutron_span(buffer->channels_held, buffer->channel_pitch);
}

/* The buffer at `index`, or NULL where it lacks an element of the window. */
NEUTRON_SMALL const NeutronBuffer *neutron_window_buffer(const NeutronProgramView *program, uint32_t index, bool writable,
                                           const NeutronWindowExtents *window);

/* Both operands and the output have all elements of the window. */
NEUTRON_SMALL bool neutron_two_operands_are_sound(const NeutronProgramView *program, uint32_t a, uint32_t b, uint32_t output,
                                    const NeutronWindowExtents *window);

/* The output has the window, the input its batches and channels in all columns, and a constant so many int32 for each row and each
 * column of the output. These maps can't be read yet: they may name any row and any column of the input. */
static inline bool neutron_maps_are_sound(const NeutronProgramView *program, uint32_t input, uint32_t output, uint32_t base,
                                          uint32_t offset, uint32_t words, const NeutronWindowExtents *window) {
    const NeutronBuffer *in = neutron_checked_buffer(program, input, false);
    const NeutronBuffer *out = neutron_window_buffer(program, output, true, window);
    return in != NULL && out != NULL && window->batch1 <= in->batches &&
           neutron_buffer_holds(in, 0, in->cols, window->channel0, window->channel1) &&
           neutron_range_is_sound(program, base, offset, ((uint64_t)out->rows + (uint64_t)out->cols) * words * 4, 4);
}

static inline bool neutron_is_stored(int32_t value) { return value >= INT8_MIN && value <= INT8_MAX; }

/* Bounds of a fused activation. */
static inline bool neutron_bounds_are_sound(int32_t low, int32_t high) {
    return low >= INT8_MIN && low <= high && high <= INT8_MAX;
}

/* ---- for run ------------------------------------------------------------------------------------------------------ */

/* The address of element (n, r, c, k). */
static inline uint8_t *neutron_element_address(const NeutronBases *bases, const NeutronBuffer *buffer, int32_t n,
                                               int32_t r, int32_t c, int32_t k) {
    return neutron_row_address(bases, buffer, n, r) + (ptrdiff_t)c * buffer->col_pitch +
           (ptrdiff_t)k * buffer->channel_pitch;
}

/* A column of a window, in an input of which a kernel reads all channels and in the output. */
typedef struct {
    const uint8_t *from; /* channel 0 */
    uint8_t *to;         /* the window's first channel */
    int32_t left;        /* columns of the row from this one on */
} NeutronColumn;

static inline NeutronColumn neutron_first_column(const NeutronKernelCall *call, const NeutronBuffer *in,
                                                 const NeutronBuffer *out, int32_t n, int32_t r) {
    const NeutronWindowExtents *w = &call->window;
    return (NeutronColumn){neutron_element_address(call->bases, in, n, r, w->col0, 0),
                           neutron_element_address(call->bases, out, n, r, w->col0, w->channel0), w->col1 - w->col0};
}

/* The loop that follows for each column `at` of row r of batch n. */
#define NEUTRON_FOR_EACH_COLUMN(call, in, out, n, r, at)                             \
    for (NeutronColumn at = neutron_first_column(call, in, out, n, r); at.left > 0; \
         at.left--, at.from += (in)->col_pitch, at.to += (out)->col_pitch)

/* Columns of `channels` elements follow each other as if they were one longer column. */
static inline bool neutron_columns_join(const NeutronBuffer *buffer, int32_t channels) {
    return (int64_t)buffer->channel_pitch * channels == buffer->col_pitch;
}

/* Elements of a line that holds all columns of a window's row, or 0 where that is too many to count. */
static inline int32_t neutron_joined_length(int32_t cols, int32_t channels) {
    const int64_t length = (int64_t)cols * channels;
    return length <= INT32_MAX ? (int32_t)length : 0;
}

/* Columns of `length` elements as one line, where they follow each other in all `count` buffers. */
static inline void neutron_join_columns(const NeutronBuffer *const *buffers, size_t count, int32_t *cols,
                                        int32_t *length) {
    const int32_t joined = neutron_joined_length(*cols, *length);
    if (joined == 0) return;
    for (size_t i = 0; i < count; i++) {
        if (!neutron_columns_join(buffers[i], *length)) return;
    }
    *length = joined;
    *cols = 1;
}

/* `size` elements of a line to the block. */
static NEUTRON_INLINE void neutron_load_block(int8_t *block, const uint8_t *line, int32_t pitch, int32_t size) {
    if (pitch == 1) {
        memcpy(block, line, (size_t)size);
    } else if (pitch == 0) {
        memset(block, *line, (size_t)size);
    } else {
        for (int32_t i = 0; i < size; i++) block[i] = (int8_t)line[(ptrdiff_t)i * pitch];
    }
}

/* The block to `size` elements of a line. */
static NEUTRON_INLINE void neutron_store_block(uint8_t *line, int32_t pitch, const int8_t *block, int32_t size) {
    if (pitch == 1) {
        memcpy(line, block, (size_t)size);
    } else {
        for (int32_t i = 0; i < size; i++) line[(ptrdiff_t)i * pitch] = (uint8_t)block[i];
    }
}

#if defined(__SSE2__) || defined(__ARM_NEON)
#define NEUTRON_COPIES_SHORT 1
#else
#define NEUTRON_COPIES_SHORT 0 /* without registers of 16 bytes that is more code, and slower, than a call of memcpy */
#endif

/* 8 to 32 bytes, all read before any is written: two pieces that may share bytes in the middle. */
static inline void neutron_copy_short(uint8_t *to, const uint8_t *from, size_t size) {
    if (size < 16) {
        uint64_t first, last;
        memcpy(&first, from, 8);
        memcpy(&last, from + size - 8, 8);
        memcpy(to, &first, 8);
        memcpy(to + size - 8, &last, 8);
    } else {
        uint8_t first[16], last[16];
        memcpy(first, from, 16);
        memcpy(last, from + size - 16, 16);
        memcpy(to, first, 16);
        memcpy(to + size - 16, last, 16);
    }
}

/* `count` elements from line to line. If the two overlap, the output may begin before the input. */
static inline void neutron_copy_line(uint8_t *to, int32_t to_pitch, const uint8_t *from, int32_t from_pitch,
                                     int32_t count) {
    if (to_pitch == 1 && from_pitch == 1) {
        const uintptr_t out = (uintptr_t)to, in = (uintptr_t)from, size = (uintptr_t)count;
        if (NEUTRON_COPIES_SHORT && count >= 8 && count <= 32) {
            neutron_copy_short(to, from, (size_t)count);
            return;
        }
        if (count >= (NEUTRON_COPIES_SHORT ? 33 : 8) && out - in >= size && in - out >= size) {
            memcpy(to, from, (size_t)count);
            return;
        }
    }
    for (int32_t i = 0; i < count; i++) to[(ptrdiff_t)i * to_pitch] = from[(ptrdiff_t)i * from_pitch];
}

/* Copies `length` elements from line to line, with the call's parameters. */
typedef void (*NeutronCopyLine)(const NeutronKernelCall *call, uint8_t *to, int32_t to_pitch, const uint8_t *from,
                                int32_t from_pitch, int32_t length);

/* copy() for each line of the window. */
static NEUTRON_INLINE void neutron_copy_lines(const NeutronKernelCall *call, uint32_t input, uint32_t output,
                                              NeutronCopyLine copy) {
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[input], *out = &call->buffers[output];
    int32_t cols = w->col1 - w->col0, length = w->channel1 - w->channel0;
    neutron_join_columns((const NeutronBuffer *const[]){in, out}, 2, &cols, &length);
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        const uint8_t *from = neutron_element_address(call->bases, in, n, r, w->col0, w->channel0);
        uint8_t *to = neutron_element_address(call->bases, out, n, r, w->col0, w->channel0);
        for (int32_t c = 0; c < cols; c++) {
            copy(call, to, out->channel_pitch, from, in->channel_pitch, length);
            from += in->col_pitch;
            to += out->col_pitch;
        }
    }
}

static inline void neutron_fill_line(uint8_t *to, int32_t pitch, uint8_t value, int32_t count) {
    if (pitch == 1) {
        memset(to, value, (size_t)count);
    } else {
        for (int32_t i = 0; i < count; i++) to[(ptrdiff_t)i * pitch] = value;
    }
}

/* ---- fixed point, in forms a compiler vectorises -------------------------------------------------------------------- */

/* neutron_rounding_shift_right by a constant amount, for |x| < 2^30 or an amount of 0. */
typedef struct {
    int32_t amount, half, any; /* any: all ones where amount > 0 */
} NeutronRounding;

static inline NeutronRounding neutron_rounding(int32_t amount) {
    return (NeutronRounding){amount, (int32_t)((UINT32_C(1) << amount) >> 1), amount > 0 ? -1 : 0};
}

static NEUTRON_INLINE int32_t neutron_shift_rounding(int32_t x, NeutronRounding by) {
    return (x + by.half + ((x >> 31) & by.any)) >> by.amount;
}

/* min(max(x, low), high), in LiteRT's order. */
static NEUTRON_INLINE int32_t neutron_bound(int32_t x, int32_t low, int32_t high) {
    const int32_t raised = x < low ? low : x;
    return raised > high ? high : raised;
}

#endif
