/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels with one operand where the operand or the output is int16: blocks of int16, loaded from or stored to int8 too. */
#ifndef NEUTRON_ONE_OPERAND_16_H
#define NEUTRON_ONE_OPERAND_16_H

#include "two_operands_16.h"

/* The operand and the output have all elements of the window. */
static inline bool neutron_one_operand_is_sound(const NeutronProgramView *program, uint32_t input, uint32_t input_bytes,
                                                uint32_t output, uint32_t output_bytes,
                                                const NeutronWindowExtents *window) {
    return neutron_window_elements(program, input, false, window, input_bytes) != NULL &&
           neutron_window_elements(program, output, true, window, output_bytes) != NULL;
}

/* name_row() for name_block(numbers, in, out, size) with elements of these bytes, and the same for AVX2. */
#define NEUTRON_ROWS_OF_ONE(name, in_bytes, out_bytes)                                                           \
    static NEUTRON_INLINE void name##_of_one(const void *numbers, const int16_t *in, const int16_t *none,        \
                                             int16_t *out, int32_t size) {                                       \
        (void)none;                                                                                              \
        name##_block(numbers, in, out, size);                                                                    \
    }                                                                                                            \
    static NEUTRON_INLINE void name##_row(const void *numbers, const NeutronTwoOperandRow *row) {                \
        neutron_for_each_block_16(numbers, row, name##_of_one, in_bytes, 0, out_bytes);                          \
    }                                                                                                            \
    NEUTRON_FOR_AVX2(name##_row, (const void *numbers, const NeutronTwoOperandRow *row), (numbers, row))

/* run() for each row of the window. */
static NEUTRON_INLINE void neutron_for_each_row_of_one(const NeutronKernelCall *call, uint32_t input, uint32_t output,
                                                       const void *numbers, NeutronTwoOperandRun run) {
    neutron_for_each_row(call, input, input, output, numbers, run);
}

#endif
