/* SPDX-License-Identifier: BSD-3-Clause */
/* The code that recurrent kernels of all types share: the steps of a sequence, and the checks of words and buffers. Buffers of
 * elements of two bytes may begin at any address. */
#ifndef NEUTRON_SEQUENCES_H
#define NEUTRON_SEQUENCES_H

#include "elements.h"

enum { NEUTRON_MOST_GATES = 1 << 20 };

/* The words with which the parameter block of each recurrent kernel begins. */
typedef struct {
    uint32_t input, output, hidden, cell;
    int32_t work, inputs, cells, outputs, backwards, starts, first_hidden;
} NeutronSequence;

/* A step of a sequence: its input and the hidden state before it, the cell state, which it changes, and the address of the hidden
 * state after it. */
typedef struct {
    const NeutronKernelCall *call;
    const NeutronSequence *p;
    const uint8_t *x, *h;
    uint8_t *cell, *to;
    int32_t x_pitch, h_pitch, to_pitch;
    bool is_first;
} NeutronStep;

typedef void (*NeutronTakeStep)(const NeutronStep *step, void *layer);

/* Takes all steps of each sequence of the window. The input, the output and the hidden state have elements of so many bytes, 1 or 2;
 * with 2 bytes a hidden state of 0 is stored as 0. */
void neutron_run_sequences(const NeutronKernelCall *call, int32_t element_bytes, NeutronTakeStep take_step, void *layer);

/* The shared words are sound, and the buffers hold the window of all steps. Of the input's and the output's elements the first bytes
 * are checked, of the states' all. */
bool neutron_sequence_is_sound(const NeutronProgramView *program, const NeutronSequence *p,
                               const NeutronWindowExtents *window, int32_t element_bytes);

/* A writable buffer of one column with so many channels side by side, for as many rows. */
bool neutron_state_is_sound(const NeutronProgramView *program, uint32_t index, int32_t rows, int32_t channels,
                            int32_t element_bytes);

static inline bool neutron_is_flag(int32_t word) { return word == 0 || word == 1; }

/* The packed matrix and its table, of blocks of table_block_bytes, are inside the bases of these four words; rows and inputs are
 * at most NEUTRON_MOST_GATES. */
bool neutron_packed_matrix_is_sound(const NeutronProgramView *program, const uint32_t *words, int32_t rows, int32_t inputs,
                                    uint32_t table_block_bytes);

#endif
