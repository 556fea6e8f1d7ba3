/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels with two operands, an int16 one first, or with one operand: elements of two bytes at any address, pitches in bytes. */
#ifndef NEUTRON_TWO_OPERANDS_16_H
#define NEUTRON_TWO_OPERANDS_16_H

#include "elements_16.h"
#include "two_operands.h"

/* Both operands and the output have all elements of the window. */
static inline bool neutron_two_operands_16_are_sound(const NeutronProgramView *program, uint32_t a, uint32_t b,
                                                     uint32_t output, const NeutronWindowExtents *window) {
    return neutron_window_elements(program, a, false, window, 2) != NULL &&
           neutron_window_elements(program, b, false, window, 2) != NULL &&
           neutron_window_elements(program, output, true, window, 2) != NULL;
}

/* `size` elements of both operands, or of a alone, to the result. */
typedef void (*NeutronTwoOperandBlock16)(const void *numbers, const int16_t *a, const int16_t *b, int16_t *out,
                                         int32_t size);

static NEUTRON_INLINE int32_t neutron_blocks_of_16(const void *numbers, const NeutronTwoOperandRow *row, int32_t c,
                                                   int32_t done, NeutronTwoOperandBlock16 block, const int32_t a_bytes,
                                                   const int32_t b_bytes, const int32_t out_bytes, const int32_t size) {
    const uint8_t *a_line = row->a + (ptrdiff_t)c * row->a_col_pitch;
    const uint8_t *b_line = row->b + (ptrdiff_t)c * row->b_col_pitch;
    uint8_t *out_line = row->out + (ptrdiff_t)c * row->out_col_pitch;
    int16_t a[NEUTRON_BLOCK], b[NEUTRON_BLOCK], out[NEUTRON_BLOCK];
    for (; done <= row->length - size; done += size) {
        neutron_load_block_of(a, a_line + (ptrdiff_t)done * row->a_pitch, row->a_pitch, size, a_bytes);
        if (b_bytes > 0) neutron_load_block_of(b, b_line + (ptrdiff_t)done * row->b_pitch, row->b_pitch, size, b_bytes);
        block(numbers, a, b_bytes > 0 ? b : NULL, out, size);
        neutron_store_block_of(out_line + (ptrdiff_t)done * row->out_pitch, row->out_pitch, out, size, out_bytes);
    }
    return done;
}

/* block() for all elements of a row; b has no bytes where the function reads a alone. Inlined together with block(), so that the
 * sizes are constants there too. */
static NEUTRON_INLINE void neutron_for_each_block_16(const void *numbers, const NeutronTwoOperandRow *row,
                                                     NeutronTwoOperandBlock16 block, const int32_t a_bytes,
                                                     const int32_t b_bytes, const int32_t out_bytes) {
    for (int32_t c = 0; c < row->cols; c++) {
        int32_t done = 0;
        if (NEUTRON_BLOCK > 1) {
            done = neutron_blocks_of_16(numbers, row, c, 0, block, a_bytes, b_bytes, out_bytes, NEUTRON_BLOCK);
        }
        neutron_blocks_of_16(numbers, row, c, done, block, a_bytes, b_bytes, out_bytes, 1);
    }
}

/* name_row() for name_block() with elements of b and of the output of these bytes, and name_row_vector(). */
#define NEUTRON_ROWS_OF_BLOCKS_OF(name, b_bytes, out_bytes)                                                      \
    static NEUTRON_INLINE void name##_row(const void *numbers, const NeutronTwoOperandRow *row) {                \
        neutron_for_each_block_16(numbers, row, name##_block, 2, b_bytes, out_bytes);                            \
    }                                                                                                            \
    NEUTRON_FOR_VECTORS(name##_row, (const void *numbers, const NeutronTwoOperandRow *row), (numbers, row))

#define NEUTRON_ROWS_OF_BLOCKS_16(name) NEUTRON_ROWS_OF_BLOCKS_OF(name, 2, 2)

/* ---- one operand: blocks of int16, loaded from or stored to int8 too ------------------------------------------------------- */

/* The operand and the output have all elements of the window. */
static inline bool neutron_one_operand_is_sound(const NeutronProgramView *program, uint32_t input, uint32_t input_bytes,
                                                uint32_t output, uint32_t output_bytes,
                                                const NeutronWindowExtents *window) {
    return neutron_window_elements(program, input, false, window, input_bytes) != NULL &&
           neutron_window_elements(program, output, true, window, output_bytes) != NULL;
}

/* name_row() for name_block(numbers, in, out, size) with elements of these bytes, and name_row_vector(). */
#define NEUTRON_ROWS_OF_ONE(name, in_bytes, out_bytes)                                                           \
    static NEUTRON_INLINE void name##_of_one(const void *numbers, const int16_t *in, const int16_t *none,        \
                                             int16_t *out, int32_t size) {                                       \
        (void)none;                                                                                              \
        name##_block(numbers, in, out, size);                                                                    \
    }                                                                                                            \
    static NEUTRON_INLINE void name##_row(const void *numbers, const NeutronTwoOperandRow *row) {                \
        neutron_for_each_block_16(numbers, row, name##_of_one, in_bytes, 0, out_bytes);                          \
    }                                                                                                            \
    NEUTRON_FOR_VECTORS(name##_row, (const void *numbers, const NeutronTwoOperandRow *row), (numbers, row))

/* run() for each row of the window. */
static NEUTRON_INLINE void neutron_for_each_row_of_one(const NeutronKernelCall *call, uint32_t input, uint32_t output,
                                                       const void *numbers, NeutronTwoOperandRun run) {
    neutron_for_each_row(call, input, input, output, numbers, run);
}

#endif
