/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels with one operand where the operand or the output is int16: blocks of int16, loaded from or stored to int8 too. */
#ifndef NEUTRON_ONE_OPERAND_16_H
#define NEUTRON_ONE_OPERAND_16_H

#include "elements_16.h"
#include "two_operands.h"

/* The operand and the output have all elements of the window. */
static inline bool neutron_one_operand_is_sound(const NeutronProgramView *program, uint32_t input, uint32_t input_bytes,
                                                uint32_t output, uint32_t output_bytes,
                                                const NeutronWindowExtents *window) {
    return neutron_window_elements(program, input, false, window, input_bytes) != NULL &&
           neutron_window_elements(program, output, true, window, output_bytes) != NULL;
}

/* `size` elements of the operand to the result. */
typedef void (*NeutronOneOperandBlock16)(const void *numbers, const int16_t *in, int16_t *out, int32_t size);

static NEUTRON_INLINE int32_t neutron_blocks_of_one(const void *numbers, const NeutronTwoOperandRow *row, int32_t c,
                                                    int32_t done, NeutronOneOperandBlock16 block, const int32_t in_bytes,
                                                    const int32_t out_bytes, const int32_t size) {
    const uint8_t *in_line = row->a + (ptrdiff_t)c * row->a_col_pitch;
    uint8_t *out_line = row->out + (ptrdiff_t)c * row->out_col_pitch;
    int16_t in[NEUTRON_BLOCK], out[NEUTRON_BLOCK];
    for (; done <= row->length - size; done += size) {
        neutron_load_block_of(in, in_line + (ptrdiff_t)done * row->a_pitch, row->a_pitch, size, in_bytes);
        block(numbers, in, out, size);
        neutron_store_block_of(out_line + (ptrdiff_t)done * row->out_pitch, row->out_pitch, out, size, out_bytes);
    }
    return done;
}

/* block() for all elements of a row. Inlined with it, so that the sizes are constants there too. */
static NEUTRON_INLINE void neutron_for_each_block_of_one(const void *numbers, const NeutronTwoOperandRow *row,
                                                         NeutronOneOperandBlock16 block, const int32_t in_bytes,
                                                         const int32_t out_bytes) {
    for (int32_t c = 0; c < row->cols; c++) {
        int32_t done = 0;
        if (NEUTRON_BLOCK > 1) {
            done = neutron_blocks_of_one(numbers, row, c, 0, block, in_bytes, out_bytes, NEUTRON_BLOCK);
        }
        neutron_blocks_of_one(numbers, row, c, done, block, in_bytes, out_bytes, 1);
    }
}

/* name_row() for name_block() with elements of these bytes, and the same for AVX2. */
#define NEUTRON_ROWS_OF_ONE(name, in_bytes, out_bytes)                                                           \
    static NEUTRON_INLINE void name##_row(const void *numbers, const NeutronTwoOperandRow *row) {                \
        neutron_for_each_block_of_one(numbers, row, name##_block, in_bytes, out_bytes);                          \
    }                                                                                                            \
    NEUTRON_FOR_AVX2(name##_row, (const void *numbers, const NeutronTwoOperandRow *row), (numbers, row))

/* run() for each row of the window. */
static NEUTRON_INLINE void neutron_for_each_row_of_one(const NeutronKernelCall *call, uint32_t input, uint32_t output,
                                                       const void *numbers, NeutronTwoOperandRun run) {
    neutron_for_each_row(call, input, input, output, numbers, run);
}

#endif
