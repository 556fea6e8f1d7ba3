/* SPDX-License-Identifier: BSD-3-Clause */
/* Vectors of int16 gates, their products, and the functions of a gate, for the recurrent kernels.
 *
 * Gates before their function are int16 with 12 fractional bits, behind it int16 with 15. Buffers of int16 may begin at any
 * address. */
#ifndef NEUTRON_GATES_H
#define NEUTRON_GATES_H

#include "conv_2d/convolution.h"
#include "elements_16.h"
#include "sequence_jobs.h"
#include "sequences.h"

static inline int16_t neutron_bound_16(int32_t x) { return (int16_t)neutron_bound(x, INT16_MIN, INT16_MAX); }

/* A packed matrix [rows/8][inputs/8][8 rows][8 inputs] with its requantization, and the vector that it is multiplied with. */
typedef struct {
    const int8_t *weights;
    const NeutronRequantBlock *table;
    const uint8_t *vector;
    int32_t vector_pitch, inputs;
#ifdef __linux__
    const NeutronSequenceJobs *jobs; /* whose results are the product; NULL: none */
#endif
} NeutronMatrix;

/* Rows [8 * block, 8 * block + 8) of the product, rescaled with two roundings as LiteRT does, or with one. */
void neutron_multiply_rows(int32_t *results, const NeutronMatrix *matrix, size_t block, bool once);

/* The matrix of four words: base and offset of its weights, and of its table. */
NeutronMatrix neutron_matrix_at(const NeutronKernelCall *call, const uint32_t *words, int32_t inputs);

/* gates[row] = bounded(bounded(row of x) + row of h) for so many rows, int16 side by side. */
void neutron_multiply_gates(uint8_t *gates, int32_t rows, const NeutronMatrix *x, const NeutronMatrix *h);

/* gemmlowp's logistic(), from 12 fractional bits to 15. */
int32_t neutron_logistic_16(int32_t x);

/* gemmlowp's tanh(), from 15 - integer_bits fractional bits to 15; integer_bits 0 to 6. */
int32_t neutron_tanh_16(int32_t x, int32_t integer_bits);

/* The packed matrix and its table are inside their bases; rows and inputs are at most NEUTRON_MOST_GATES. */
static inline bool neutron_matrix_is_sound(const NeutronProgramView *program, const uint32_t *words, int32_t rows,
                                           int32_t inputs) {
    return neutron_packed_matrix_is_sound(program, words, rows, inputs, sizeof(NeutronRequantBlock));
}

#ifdef __linux__
/* The runs of recurrent_s8 and unidirectional_sequence_lstm_s8 with the products of the inputs from jobs. */
void neutron_run_recurrent_with_jobs(const NeutronKernelCall *call, NeutronSequenceJobs *jobs);
void neutron_run_lstm_with_jobs(const NeutronKernelCall *call, NeutronSequenceJobs *jobs);
#endif

#endif
