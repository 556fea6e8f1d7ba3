/* SPDX-License-Identifier: BSD-3-Clause */
/* LSTM on int16 with int8 weights as in LiteRT for Microcontrollers (lstm_eval.h, 16x8): all steps of each sequence.
 *
 * Products are rescaled and bounded as in FULLY_CONNECTED, with int64 sums. Products of gates are rescaled with two roundings, as in MUL.
 * The functions of gates are LOGISTIC and TANH, with their table. */
#include "convolution_16.h"
#include "logistic/logistic_16.h"
#include "sequences.h"

enum { INPUT, FORGET, CELL, OUTPUT, GATES };
enum { LOWEST_CELL_SHIFT = -15, HIGHEST_CELL_SHIFT = 0, ANY_CELL = 1 << 15 };

bool unidirectional_sequence_lstm_s16_check(const NeutronProgramView *program, const void *params,
                                            const NeutronWindowExtents *window) {
    const NeutronUnidirectionalSequenceLstmS16 *p = params;
    if (!neutron_sequence_is_sound(program, params, window, 2) || !neutron_is_flag(p->starts) || p->first_hidden != 0 ||
        p->outputs != p->cells || !neutron_elements_are_sound(program, &program->buffers[p->input], false, 2) ||
        !neutron_elements_are_sound(program, &program->buffers[p->output], true, 2)) {
        return false;
    }
    const int32_t rows = GATES * p->cells;
    const uint32_t block = sizeof(NeutronRequantBlock16);
    return p->cell_shift >= LOWEST_CELL_SHIFT && p->cell_shift <= HIGHEST_CELL_SHIFT && p->cell_clip >= 0 &&
           p->cell_clip <= ANY_CELL && p->hidden_multiplier >= 0 && neutron_shift_is_sound(p->hidden_shift) &&
           neutron_state_is_sound(program, p->gates, 1, rows, 2) &&
           neutron_packed_matrix_is_sound(program, &p->input_weights_base, rows, p->inputs, block) &&
           neutron_packed_matrix_is_sound(program, &p->hidden_weights_base, rows, p->outputs, block) &&
           neutron_range_is_sound(program, p->sigmoid_base, p->sigmoid_offset, NEUTRON_SIGMOID_BYTES, 2);
}

/* ---- run ------------------------------------------------------------------------------------------------------------ */

/* A packed matrix, its requantization, and the vector that it is multiplied with. */
typedef struct {
    const int8_t *weights;
    const NeutronRequantBlock16 *table;
    const uint8_t *vector;
    int32_t vector_pitch, inputs;
} Matrix;

typedef struct {
    const NeutronUnidirectionalSequenceLstmS16 *p;
    Matrix x, h;
    const uint16_t *sigmoid;
    uint8_t *gates;
} Layer;

static int32_t bound_16(int32_t x) { return neutron_bound(x, INT16_MIN, INT16_MAX); }

/* A matrix of four words: base and offset of its weights, and of its table. */
static Matrix matrix_at(const NeutronKernelCall *call, const uint32_t *words, int32_t inputs) {
    const void *weights = neutron_base_address(call->bases, words[0]) + words[1];
    const void *table = neutron_base_address(call->bases, words[2]) + words[3];
    return (Matrix){weights, table, NULL, 2, inputs};
}

static void multiply_rows(int32_t *results, const Matrix *matrix, size_t block) {
    const size_t block_bytes = neutron_blocks_of(matrix->inputs) * NEUTRON_LANES * NEUTRON_LANES;
    const NeutronRequantBlock16 *table = matrix->table + block;
    uint64_t sums[NEUTRON_LANES];
    for (int32_t k = 0; k < NEUTRON_LANES; k++) sums[k] = neutron_bias_16(table, k);
    neutron_multiply_pixel_16(sums, matrix->weights + block * block_bytes, matrix->vector, matrix->vector_pitch, matrix->inputs);
    for (int32_t k = 0; k < NEUTRON_LANES; k++) {
        results[k] = bound_16(neutron_rescaled_64(sums[k], table->multiplier[k], table->shift[k]));
    }
}

/* Computes all gates before their functions, with 12 fractional bits. */
static void multiply_gates(const Layer *layer) {
    const int32_t rows = GATES * layer->p->cells;
    for (int32_t first = 0; first < rows; first += NEUTRON_LANES) {
        int32_t of_x[NEUTRON_LANES], of_h[NEUTRON_LANES];
        multiply_rows(of_x, &layer->x, (size_t)first / NEUTRON_LANES);
        multiply_rows(of_h, &layer->h, (size_t)first / NEUTRON_LANES);
        for (int32_t k = 0; k < NEUTRON_LANES && k < rows - first; k++) {
            neutron_store_16(layer->gates + 2 * (ptrdiff_t)(first + k), (int16_t)bound_16(of_x[k] + of_h[k]));
        }
    }
}

static int32_t gate_of(const Layer *layer, int gate, ptrdiff_t unit) {
    return 3 * neutron_load_16(layer->gates + 2 * (gate * (ptrdiff_t)layer->p->cells + unit));
}

static int32_t logistic_of(const Layer *layer, int gate, ptrdiff_t unit) {
    return neutron_table_logistic_16(gate_of(layer, gate, unit), layer->sigmoid);
}

/* The tanh of a cell. The function rounds off the fractional bits of a scale below 2^-12. */
static int32_t tanh_of(const Layer *layer, int32_t cell) {
    const int32_t left = 12 + layer->p->cell_shift, right = left < 0 ? -left : 0;
    const int32_t exact = 3 * cell * (left > 0 ? 1 << left : 1);
    return neutron_table_tanh_16((exact + (1 << right >> 1)) >> right, layer->sigmoid);
}

static void take_step(const NeutronStep *step, void *of) {
    Layer *layer = of;
    const NeutronUnidirectionalSequenceLstmS16 *p = layer->p;
    const int32_t half = INT32_C(1) << 30, clip = p->cell_clip;
    layer->x.vector = step->x;
    layer->x.vector_pitch = step->x_pitch;
    layer->h.vector = step->h;
    layer->h.vector_pitch = step->h_pitch;
    multiply_gates(layer);
    for (ptrdiff_t i = 0; i < p->cells; i++) {
        const int32_t forget = logistic_of(layer, FORGET, i), taken = logistic_of(layer, INPUT, i);
        const int32_t new = neutron_table_tanh_16(gate_of(layer, CELL, i), layer->sigmoid);
        const int32_t kept = bound_16(neutron_requantize(forget * neutron_load_16(step->cell + 2 * i), half, -14));
        const int32_t added = bound_16(neutron_requantize(taken * new, half, -29 - p->cell_shift));
        const int32_t cell = neutron_bound(bound_16(kept + added), -clip, clip);
        const int32_t shown = logistic_of(layer, OUTPUT, i) * tanh_of(layer, cell);
        const int32_t hidden = neutron_requantize(shown, p->hidden_multiplier, p->hidden_shift);
        neutron_store_16(step->cell + 2 * i, (int16_t)cell);
        neutron_store_16(step->to + i * step->to_pitch, (int16_t)bound_16(hidden));
    }
}

void unidirectional_sequence_lstm_s16_run(const NeutronKernelCall *call) {
    const NeutronUnidirectionalSequenceLstmS16 *p = call->params;
    Layer layer = {
        .p = p,
        .x = matrix_at(call, &p->input_weights_base, p->inputs),
        .h = matrix_at(call, &p->hidden_weights_base, p->outputs),
        .sigmoid = (const uint16_t *)(const void *)(neutron_base_address(call->bases, p->sigmoid_base) + p->sigmoid_offset),
        .gates = neutron_element_address(call->bases, &call->buffers[p->gates], 0, 0, 0, 0),
    };
    neutron_run_sequences(call, 2, take_step, &layer);
}
