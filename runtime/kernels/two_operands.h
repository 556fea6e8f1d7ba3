/* SPDX-License-Identifier: BSD-3-Clause */
/* Loops over the windows of kernels with two operands. */
#ifndef NEUTRON_TWO_OPERANDS_H
#define NEUTRON_TWO_OPERANDS_H

#include "vector.h"

/* A row of a window: `cols` lines of `length` elements. */
typedef struct {
    const uint8_t *a, *b;
    uint8_t *out;
    int32_t a_pitch, b_pitch, out_pitch;             /* from element to element */
    int32_t a_col_pitch, b_col_pitch, out_col_pitch; /* from line to line */
    int32_t cols, length;
} NeutronTwoOperandRow;

typedef void (*NeutronTwoOperandRun)(const void *numbers, const NeutronTwoOperandRow *row);

/* run() for each row of the window, with columns joined to one line where all three buffers allow it. */
static NEUTRON_INLINE void neutron_for_each_row(const NeutronKernelCall *call, uint32_t input_a, uint32_t input_b,
                                        uint32_t output, const void *numbers, NeutronTwoOperandRun run) {
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *a = &call->buffers[input_a], *b = &call->buffers[input_b], *out = &call->buffers[output];
    NeutronTwoOperandRow row = {
        .a_pitch = a->channel_pitch,
        .b_pitch = b->channel_pitch,
        .out_pitch = out->channel_pitch,
        .a_col_pitch = a->col_pitch,
        .b_col_pitch = b->col_pitch,
        .out_col_pitch = out->col_pitch,
        .cols = w->col1 - w->col0,
        .length = w->channel1 - w->channel0,
    };
    neutron_join_columns((const NeutronBuffer *const[]){a, b, out}, 3, &row.cols, &row.length);
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        row.a = neutron_element_address(call->bases, a, n, r, w->col0, w->channel0);
        row.b = neutron_element_address(call->bases, b, n, r, w->col0, w->channel0);
        row.out = neutron_element_address(call->bases, out, n, r, w->col0, w->channel0);
        run(numbers, &row);
    }
}

/* A block's elements of both operands to blocks, or a block to the output: element i of the line in column c. */
static NEUTRON_INLINE void neutron_load_operands(const NeutronTwoOperandRow *row, int32_t c, int32_t i, int8_t *a,
                                                 int8_t *b, int32_t size) {
    neutron_load_block(a, row->a + (ptrdiff_t)c * row->a_col_pitch + (ptrdiff_t)i * row->a_pitch, row->a_pitch, size);
    neutron_load_block(b, row->b + (ptrdiff_t)c * row->b_col_pitch + (ptrdiff_t)i * row->b_pitch, row->b_pitch, size);
}

static NEUTRON_INLINE void neutron_store_result(const NeutronTwoOperandRow *row, int32_t c, int32_t i,
                                                const int8_t *out, int32_t size) {
    neutron_store_block(row->out + (ptrdiff_t)c * row->out_col_pitch + (ptrdiff_t)i * row->out_pitch, row->out_pitch,
                        out, size);
}

/* `size` elements of both operands to the result. */
typedef void (*NeutronTwoOperandBlock)(const void *numbers, const int8_t *a, const int8_t *b, int8_t *out, int32_t size);

static NEUTRON_INLINE int32_t neutron_blocks_of(const void *numbers, const NeutronTwoOperandRow *row, int32_t c,
                                                int32_t done, NeutronTwoOperandBlock block, const int32_t size) {
    int8_t a[NEUTRON_BLOCK], b[NEUTRON_BLOCK], out[NEUTRON_BLOCK];
    for (; done <= row->length - size; done += size) {
        neutron_load_operands(row, c, done, a, b, size);
        block(numbers, a, b, out, size);
        neutron_store_result(row, c, done, out, size);
    }
    return done;
}

/* block() for all elements of a row. Inlined with it, so that the block's size is a constant there too. */
static NEUTRON_INLINE void neutron_for_each_block(const void *numbers, const NeutronTwoOperandRow *row,
                                                  NeutronTwoOperandBlock block) {
    for (int32_t c = 0; c < row->cols; c++) {
        const int32_t done = NEUTRON_BLOCK > 1 ? neutron_blocks_of(numbers, row, c, 0, block, NEUTRON_BLOCK) : 0;
        neutron_blocks_of(numbers, row, c, done, block, 1);
    }
}

/* A number's way to the stored result: its scale, bounds before the zero point is added, and the zero point. */
typedef struct {
    int32_t multiplier, left;
    NeutronRounding rounding;
    int32_t zero_point, low, high;
} NeutronResult;

static inline NeutronResult neutron_result(int32_t multiplier, int32_t shift, int32_t zero_point, int32_t clamp_min,
                                           int32_t clamp_max) {
    const int32_t left = shift > 0 ? shift : 0;
    return (NeutronResult){multiplier, left,       neutron_rounding(left - shift),
                           zero_point, clamp_min - zero_point, clamp_max - zero_point};
}

static NEUTRON_INLINE int8_t neutron_result_of(int32_t x, const NeutronResult *by) {
    const int32_t shifted = (int32_t)((uint32_t)x << by->left);
    const int32_t rescaled = neutron_shift_rounding(neutron_high_mul(shifted, by->multiplier), by->rounding);
    return (int8_t)(neutron_bound(rescaled, by->low, by->high) + by->zero_point);
}

/* name_row() for name_block(), and name_row_vector(). */
#define NEUTRON_ROWS_OF_BLOCKS(name)                                                                             \
    static NEUTRON_INLINE void name##_row(const void *numbers, const NeutronTwoOperandRow *row) {                \
        neutron_for_each_block(numbers, row, name##_block);                                                      \
    }                                                                                                            \
    NEUTRON_FOR_VECTORS(name##_row, (const void *numbers, const NeutronTwoOperandRow *row), (numbers, row))

/* The scale of the difference of an operand and its zero point: the shift is to the right, or 0. */
typedef struct {
    int32_t zero_point, multiplier;
    NeutronRounding rounding;
} NeutronOperandScale;

static inline NeutronOperandScale neutron_operand_scale(int32_t zero_point, int32_t multiplier, int32_t shift) {
    return (NeutronOperandScale){zero_point, multiplier, neutron_rounding(-shift)};
}

static NEUTRON_INLINE int32_t neutron_scaled_difference_1(int32_t difference, const NeutronOperandScale *by) {
    return neutron_shift_rounding(neutron_high_mul(difference, by->multiplier), by->rounding);
}

/* name_block() of `Numbers` by the function `scaled`; the relation is a constant in the block. */
#define NEUTRON_RELATION_BLOCK(name, relation, type, out_type)                                                   \
    static NEUTRON_INLINE void name##_block(const void *numbers, const type *a, const type *b, out_type *out,    \
                                            int32_t size) {                                                      \
        const Numbers *p = numbers;                                                                              \
        for (int32_t i = 0; i < size; i++) out[i] = scaled(a[i], &p->a) relation scaled(b[i], &p->b);            \
    }

/* larger_row() and smaller_row() of elements of this type by `rows_of`, a macro that makes name_row() of name_block(). */
#define NEUTRON_ROWS_OF_LARGER_AND_SMALLER(type, rows_of)                                                         \
    static NEUTRON_INLINE void larger_block(const void *numbers, const type *a, const type *b, type *out,         \
                                            int32_t size) {                                                       \
        (void)numbers;                                                                                            \
        for (int32_t i = 0; i < size; i++) out[i] = a[i] > b[i] ? a[i] : b[i];                                    \
    }                                                                                                             \
    static NEUTRON_INLINE void smaller_block(const void *numbers, const type *a, const type *b, type *out,        \
                                             int32_t size) {                                                      \
        (void)numbers;                                                                                            \
        for (int32_t i = 0; i < size; i++) out[i] = a[i] < b[i] ? a[i] : b[i];                                    \
    }                                                                                                             \
    rows_of(larger) rows_of(smaller)

/* ---- one text for numbers and for vectors of them -------------------------------------------------------------------- */

#if NEUTRON_VECTORS

/* DEFINE(type, suffix, attributes) for one number, and for a register of them. */
#define NEUTRON_FOR_EACH_WIDTH(DEFINE)         \
    DEFINE(int32_t, _1, static NEUTRON_INLINE) \
    DEFINE(NeutronWords, _words, NEUTRON_VECTOR_INLINE)

/* Returns the numbers that become the results of two operands' stored values. */
typedef NeutronWords (*NeutronCombineWords)(const void *numbers, NeutronWords a, NeutronWords b);

/* NeutronResult, in registers. */
typedef struct {
    NeutronWords multiplier, zero_point, low, high;
    NeutronRoundingWords rounding;
    int32_t left;
} NeutronResultWords;

NEUTRON_VECTOR_INLINE NeutronResultWords neutron_result_words(const NeutronResult *by) {
    return (NeutronResultWords){
        .multiplier = neutron_words(by->multiplier),
        .zero_point = neutron_words(by->zero_point),
        .low = neutron_words(by->low),
        .high = neutron_words(by->high),
        .rounding = neutron_rounding_words(by->rounding),
        .left = by->left,
    };
}

/* neutron_result_of() */
NEUTRON_VECTOR_INLINE NeutronWords neutron_result_of_words(NeutronWords x, const NeutronResultWords *by) {
    const NeutronWords product = neutron_high_mul_words(neutron_shift_left_words(x, by->left), by->multiplier);
    const NeutronWords rescaled = neutron_shift_rounding_words(product, &by->rounding);
    return neutron_bound_words(rescaled, by->low, by->high) + by->zero_point;
}

/* neutron_scaled_difference_1() */
NEUTRON_VECTOR_INLINE NeutronWords neutron_scaled_difference_words(NeutronWords difference, const NeutronOperandScale *by) {
    const NeutronRoundingWords rounding = neutron_rounding_words(by->rounding);
    return neutron_shift_rounding_words(neutron_high_mul_words(difference, neutron_words(by->multiplier)), &rounding);
}

/* A step of a line's int8 elements, of which `count` are left. */
NEUTRON_VECTOR_INLINE void neutron_load_line_words(NeutronWords *x, const uint8_t *line, int32_t pitch, int32_t count) {
    if (pitch == 1) {
        neutron_load_words_8(x, line, count);
    } else {
        int8_t block[NEUTRON_STEP] = {0};
        neutron_load_block(block, line, pitch, count < NEUTRON_STEP ? count : NEUTRON_STEP);
        neutron_load_words_8(x, block, NEUTRON_STEP);
    }
}

NEUTRON_VECTOR_INLINE void neutron_store_line_words(uint8_t *line, int32_t pitch, const NeutronWords *x, int32_t count) {
    if (pitch == 1) {
        neutron_store_words_8(line, x, count);
    } else {
        int8_t block[NEUTRON_STEP];
        neutron_store_words_8(block, x, NEUTRON_STEP);
        neutron_store_block(line, pitch, block, count < NEUTRON_STEP ? count : NEUTRON_STEP);
    }
}

/* The operands and the output of a line, from an element on, and their pitches. */
typedef struct {
    const uint8_t *a, *b;
    uint8_t *out;
    int32_t a_pitch, b_pitch, out_pitch;
} NeutronTwoOperandLine;

NEUTRON_VECTOR_INLINE void neutron_step(const void *numbers, const NeutronResultWords *by, const NeutronTwoOperandLine *at,
                                        NeutronCombineWords combine, int32_t count) {
    NeutronWords a[NEUTRON_PARTS], b[NEUTRON_PARTS];
    neutron_load_line_words(a, at->a, at->a_pitch, count);
    neutron_load_line_words(b, at->b, at->b_pitch, count);
    NEUTRON_UNROLL
    for (int i = 0; i < NEUTRON_PARTS; i++) a[i] = neutron_result_of_words(combine(numbers, a[i], b[i]), by);
    neutron_store_line_words(at->out, at->out_pitch, a, count);
}

/* The lines of a row; `dense`: all pitches are 1. */
NEUTRON_VECTOR_INLINE void neutron_lines(const void *numbers, const NeutronResultWords *by, const NeutronTwoOperandRow *row,
                                         NeutronCombineWords combine, const bool dense) {
    for (int32_t c = 0; c < row->cols; c++) {
        NeutronTwoOperandLine at = {
            .a = row->a + (ptrdiff_t)c * row->a_col_pitch,
            .b = row->b + (ptrdiff_t)c * row->b_col_pitch,
            .out = row->out + (ptrdiff_t)c * row->out_col_pitch,
            .a_pitch = dense ? 1 : row->a_pitch,
            .b_pitch = dense ? 1 : row->b_pitch,
            .out_pitch = dense ? 1 : row->out_pitch,
        };
        int32_t left = row->length;
        for (; left >= NEUTRON_STEP; left -= NEUTRON_STEP) {
            neutron_step(numbers, by, &at, combine, NEUTRON_STEP);
            at.a += (ptrdiff_t)NEUTRON_STEP * at.a_pitch;
            at.b += (ptrdiff_t)NEUTRON_STEP * at.b_pitch;
            at.out += (ptrdiff_t)NEUTRON_STEP * at.out_pitch;
        }
        if (left > 0) neutron_step(numbers, by, &at, combine, left);
    }
}

NEUTRON_VECTOR_INLINE void neutron_row_vector(const void *numbers, const NeutronResult *result,
                                              const NeutronTwoOperandRow *row, NeutronCombineWords combine) {
    const NeutronResultWords by = neutron_result_words(result);
    if (row->a_pitch == 1 && row->b_pitch == 1 && row->out_pitch == 1) {
        neutron_lines(numbers, &by, row, combine, true);
    } else {
        neutron_lines(numbers, &by, row, combine, false);
    }
}

#define NEUTRON_ROW_VECTOR(name, Numbers, combine)                                                       \
    NEUTRON_VECTOR static void name##_row_vector(const void *numbers, const NeutronTwoOperandRow *row) { \
        const Numbers copy = *(const Numbers *)numbers;                                                  \
        neutron_row_vector(&copy, &copy.result, row, combine##_words);                                   \
    }
#else
#define NEUTRON_FOR_EACH_WIDTH(DEFINE) DEFINE(int32_t, _1, static NEUTRON_INLINE)
#define NEUTRON_ROW_VECTOR(name, Numbers, combine)
#endif

/* name_row() and name_row_vector() for combine_1() and combine_words(), whose Numbers have a NeutronResult. Stores to the output can't
 * change the copy of the numbers, so that the copy stays in registers. */
#define NEUTRON_ROWS_OF_NUMBERS(name, Numbers, combine)                                                           \
    static NEUTRON_INLINE void name##_block(const void *numbers, const int8_t *a, const int8_t *b, int8_t *out,  \
                                            int32_t size) {                                                      \
        const Numbers *p = numbers;                                                                              \
        for (int32_t i = 0; i < size; i++) out[i] = neutron_result_of(combine##_1(p, a[i], b[i]), &p->result);   \
    }                                                                                                            \
    static void name##_row(const void *numbers, const NeutronTwoOperandRow *row) {                               \
        neutron_for_each_block(numbers, row, name##_block);                                                      \
    }                                                                                                            \
    NEUTRON_ROW_VECTOR(name, Numbers, combine)

#endif
