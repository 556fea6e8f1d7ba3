/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's LSTM on int8 with an int16 cell state (LstmStepInteger8x8_16 of lstm_eval.cc): all steps of each sequence.
 *
 * A step has three parts. The products of all gates go to the scratch buffer `gates`. Then the gates in front of the cell
 * state change it, unit by unit. The output gate, which may see the new cell state, gives the hidden state. */
#include "gates.h"
#include "inverse_root.h"

enum { INPUT, FORGET, CELL, OUTPUT, GATES };

/* A row of `coefficients`. */
typedef struct {
    int32_t multiplier, shift, guard;
    int32_t values[];
} Coefficients;

static uint64_t coefficient_rows(const NeutronUnidirectionalSequenceLstmS8 *p) {
    const uint64_t gates = p->cifg != 0 ? GATES - 1 : GATES;
    return (p->peephole != 0 ? gates - 1 : 0) + (p->layer_norm != 0 ? 2 * gates : 0);
}

static bool is_flag(int32_t word) { return word == 0 || word == 1; }

static bool words_are_sound(const NeutronUnidirectionalSequenceLstmS8 *p) {
    const int32_t most = NEUTRON_MOST_GATES / GATES;
    if (p->inputs < 1 || p->inputs > most || p->cells < 1 || p->cells > most || p->outputs < 1 || p->outputs > most) {
        return false;
    }
    const int64_t products = (int64_t)p->cells * ((int64_t)p->inputs + p->outputs);
    return (int64_t)p->work * p->outputs >= products && is_flag(p->cifg) && is_flag(p->backwards) && is_flag(p->starts) &&
           is_flag(p->projected) && is_flag(p->peephole) && is_flag(p->layer_norm) &&
           (p->projected != 0 || p->outputs == p->cells) && p->cell_shift >= -15 && p->cell_shift <= -9 &&
           p->cell_clip >= 0 && p->cell_clip <= INT16_MAX && p->output_clip >= 0 && p->output_clip <= INT8_MAX &&
           neutron_shift_is_sound(p->hidden_shift) && p->hidden_multiplier >= 0 && neutron_is_stored(p->first_hidden) &&
           neutron_is_stored(p->hidden_zero_point) && neutron_is_stored(p->output_zero_point);
}

static bool constants_are_sound(const NeutronProgramView *program, const NeutronUnidirectionalSequenceLstmS8 *p) {
    const int32_t rows = (p->cifg != 0 ? GATES - 1 : GATES) * p->cells;
    const uint64_t coefficients = coefficient_rows(p) * ((uint64_t)p->cells * 4 + sizeof(Coefficients));
    return neutron_matrix_is_sound(program, &p->input_weights_base, rows, p->inputs) &&
           neutron_matrix_is_sound(program, &p->hidden_weights_base, rows, p->outputs) &&
           (p->projected == 0 || neutron_matrix_is_sound(program, &p->projection_base, p->outputs, p->cells)) &&
           neutron_range_is_sound(program, p->coefficients_base, p->coefficients_offset, coefficients, NEUTRON_ALIGNMENT);
}

/* A buffer of one column with so many channels side by side, for as many rows. */
static bool is_state(const NeutronProgramView *program, uint32_t index, int32_t rows, int32_t channels,
                     int32_t element_bytes) {
    const NeutronBuffer *buffer = neutron_checked_buffer(program, index, true);
    return buffer != NULL && buffer->rows >= rows && buffer->channel_pitch == element_bytes &&
           neutron_buffer_holds(buffer, 0, 1, 0, channels);
}

bool unidirectional_sequence_lstm_s8_check(const NeutronProgramView *program, const void *params_block,
                                           const NeutronWindowExtents *window) {
    const NeutronUnidirectionalSequenceLstmS8 *p = params_block;
    const NeutronBuffer *input = neutron_checked_buffer(program, p->input, false);
    const NeutronBuffer *output = neutron_window_buffer(program, p->output, true, window);
    if (input == NULL || output == NULL || !words_are_sound(p)) return false;
    const bool whole = window->batch0 == 0 && window->batch1 == 1 && window->col0 == 0 && window->col1 == output->cols &&
                       window->channel0 == 0 && window->channel1 == p->outputs && output->channels == p->outputs;
    return whole && window->row1 <= input->rows && neutron_buffer_holds(input, 0, output->cols, 0, p->inputs) &&
           is_state(program, p->hidden, window->row1, p->outputs, 1) &&
           is_state(program, p->cell, window->row1, p->cells, 2) && is_state(program, p->gates, 1, GATES * p->cells, 2) &&
           constants_are_sound(program, p);
}

/* ---- run ------------------------------------------------------------------------------------------------------------ */

typedef struct {
    const NeutronKernelCall *call;
    const NeutronUnidirectionalSequenceLstmS8 *p;
    NeutronMatrix x, h, projection;
    const uint8_t *coefficients; /* the next row of them */
    uint8_t *gates, *cell;
} Layer;

static const void *constant_at(const NeutronKernelCall *call, uint32_t base, uint32_t offset) {
    return neutron_base_address(call->bases, base) + offset;
}

static NeutronMatrix matrix_of(const NeutronKernelCall *call, const uint32_t *words, int32_t inputs) {
    return (NeutronMatrix){constant_at(call, words[0], words[1]), constant_at(call, words[2], words[3]), NULL, 1, inputs};
}

static uint8_t *gate_at(const Layer *layer, int gate) {
    return layer->gates + 2 * (ptrdiff_t)(gate - (layer->p->cifg != 0)) * layer->p->cells;
}

static const Coefficients *coefficients_of(const Layer *layer, uint64_t row) {
    const void *at = layer->coefficients + row * ((uint64_t)layer->p->cells * 4 + sizeof(Coefficients));
    return at;
}

static void see_cells(const Layer *layer, uint8_t *gate, const Coefficients *of) {
    const int32_t multiplier = neutron_sound_multiplier(of->multiplier), shift = neutron_sound_shift(of->shift);
    for (int32_t i = 0; i < layer->p->cells; i++) {
        const int32_t exact = (int16_t)of->values[i] * neutron_load_16(layer->cell + 2 * (ptrdiff_t)i);
        const int32_t seen = neutron_bound(neutron_requantize(exact, multiplier, shift), -(1 << 30), 1 << 30);
        neutron_store_16(gate + 2 * (ptrdiff_t)i, neutron_bound_16(seen + neutron_load_16(gate + 2 * (ptrdiff_t)i)));
    }
}

/* LiteRT's PortableApplyLayerNorm: numbers have 10 more fractional bits between the two scales. */
static void normalize(const Layer *layer, uint8_t *gate, const Coefficients *of, const Coefficients *biases) {
    const int32_t count = layer->p->cells, multiplier = neutron_sound_multiplier(of->multiplier);
    int64_t sum = 0, squares = 0;
    for (int32_t i = 0; i < count; i++) {
        const int32_t value = neutron_load_16(gate + 2 * (ptrdiff_t)i);
        sum += value;
        squares += value * value;
    }
    const int32_t mean = (int32_t)(sum * 1024 / count);
    const int64_t variance = (squares * ((1 << 20) / count) - (int64_t)mean * mean) / (1 << 20);
    int32_t shift;
    const int32_t root = neutron_inverse_root(variance < 1 ? of->guard : (int32_t)variance, &shift);
    for (int32_t i = 0; i < count; i++) {
        const int32_t centered = 1024 * neutron_load_16(gate + 2 * (ptrdiff_t)i) - mean;
        const int32_t normal = neutron_requantize(centered, root, neutron_sound_shift(shift));
        const int64_t weighted = (int64_t)normal * (int16_t)of->values[i] + biases->values[i];
        const int32_t rounded = (int32_t)((weighted > 0 ? weighted + 512 : weighted - 512) / 1024);
        const int32_t result = neutron_requantize(rounded, multiplier, neutron_sound_shift(of->shift));
        neutron_store_16(gate + 2 * (ptrdiff_t)i, neutron_bound_16(result));
    }
}

/* What comes between the products of a gate and its function. */
static void prepare_gate(const Layer *layer, int gate) {
    const NeutronUnidirectionalSequenceLstmS8 *p = layer->p;
    const uint64_t first = p->cifg != 0, gates = GATES - first, holes = p->peephole != 0 ? gates - 1 : 0;
    const uint64_t place = (uint64_t)gate - first;
    if (p->peephole != 0 && gate != CELL) {
        see_cells(layer, gate_at(layer, gate), coefficients_of(layer, gate == OUTPUT ? holes - 1 : place));
    }
    if (p->layer_norm != 0) {
        normalize(layer, gate_at(layer, gate), coefficients_of(layer, holes + place),
                  coefficients_of(layer, holes + gates + place));
    }
}

static void change_cells(const Layer *layer) {
    const NeutronUnidirectionalSequenceLstmS8 *p = layer->p;
    const uint8_t *forget = gate_at(layer, FORGET), *cell = gate_at(layer, CELL);
    const uint8_t *input = gate_at(layer, p->cifg != 0 ? FORGET : INPUT);
    const int32_t clip = p->cell_clip;
    for (ptrdiff_t at = 0; at < 2 * (ptrdiff_t)p->cells; at += 2) {
        const int32_t kept = neutron_logistic_16(neutron_load_16(forget + at));
        const int32_t taken = p->cifg != 0 ? INT16_MAX - kept : neutron_logistic_16(neutron_load_16(input + at));
        const int32_t added = taken * neutron_tanh_16(neutron_load_16(cell + at), 3);
        const int32_t old = neutron_rounding_shift_right(kept * neutron_load_16(layer->cell + at), 15);
        const int32_t sum = neutron_bound_16(old + neutron_rounding_shift_right(added, 30 + p->cell_shift));
        neutron_store_16(layer->cell + at, clip > 0 ? neutron_bound(sum, -clip, clip) : sum);
    }
}

/* The hidden state before its projection, to int8 side by side. */
static void hide_cells(const Layer *layer, uint8_t *to, int32_t pitch) {
    const NeutronUnidirectionalSequenceLstmS8 *p = layer->p;
    const uint8_t *output = gate_at(layer, OUTPUT);
    for (int32_t i = 0; i < p->cells; i++) {
        const int32_t shown = neutron_tanh_16(neutron_load_16(layer->cell + 2 * (ptrdiff_t)i), 15 + p->cell_shift);
        const int32_t exact = neutron_logistic_16(neutron_load_16(output + 2 * (ptrdiff_t)i)) * shown;
        const int32_t scaled = neutron_requantize(exact, p->hidden_multiplier, p->hidden_shift);
        const int32_t zero_point = p->hidden_zero_point;
        const int32_t stored = neutron_bound(scaled, INT8_MIN - zero_point, INT8_MAX - zero_point) + zero_point;
        to[(ptrdiff_t)i * pitch] = (uint8_t)stored;
    }
}

static void project(const Layer *layer, uint8_t *to, int32_t pitch) {
    const NeutronUnidirectionalSequenceLstmS8 *p = layer->p;
    const int32_t zero_point = p->output_zero_point, clip = p->output_clip;
    for (size_t block = 0; block < neutron_blocks_of(p->outputs); block++) {
        int32_t results[NEUTRON_LANES];
        neutron_multiply_rows(results, &layer->projection, block);
        const int32_t first = (int32_t)block * NEUTRON_LANES;
        for (int32_t k = 0; k < NEUTRON_LANES && first + k < p->outputs; k++) {
            int32_t stored = neutron_bound(results[k], INT8_MIN - zero_point, INT8_MAX - zero_point) + zero_point;
            if (clip > 0) stored = neutron_bound(stored, -clip, clip);
            to[(ptrdiff_t)(first + k) * pitch] = (uint8_t)stored;
        }
    }
}

/* One step, whose inputs the matrices know. */
static void take_step(Layer *layer, uint8_t *to, int32_t pitch) {
    const NeutronUnidirectionalSequenceLstmS8 *p = layer->p;
    const int first = p->cifg != 0 ? FORGET : INPUT;
    neutron_multiply_gates(layer->gates, (GATES - first) * p->cells, &layer->x, &layer->h);
    for (int gate = first; gate < OUTPUT; gate++) prepare_gate(layer, gate);
    change_cells(layer);
    prepare_gate(layer, OUTPUT);
    if (p->projected == 0) {
        hide_cells(layer, to, pitch);
    } else {
        /* The first gates are not needed any more. */
        hide_cells(layer, layer->gates, 1);
        layer->projection.vector = layer->gates;
        project(layer, to, pitch);
    }
}

static void run_sequence(Layer *layer, int32_t row) {
    const NeutronKernelCall *call = layer->call;
    const NeutronUnidirectionalSequenceLstmS8 *p = layer->p;
    const NeutronBuffer *input = &call->buffers[p->input], *output = &call->buffers[p->output];
    uint8_t *const hidden = neutron_element_address(call->bases, &call->buffers[p->hidden], 0, row, 0, 0);
    layer->cell = neutron_element_address(call->bases, &call->buffers[p->cell], 0, row, 0, 0);
    if (p->starts != 0) {
        memset(hidden, (uint8_t)p->first_hidden, (size_t)p->outputs);
        memset(layer->cell, 0, 2 * (size_t)p->cells);
    }
    layer->x.vector_pitch = input->channel_pitch;
    layer->h.vector = hidden;
    layer->h.vector_pitch = 1;
    const int32_t steps = call->window.col1;
    for (int32_t i = 0; i < steps; i++) {
        const int32_t step = p->backwards != 0 ? steps - 1 - i : i;
        uint8_t *to = neutron_element_address(call->bases, output, 0, row, step, 0);
        layer->x.vector = neutron_element_address(call->bases, input, 0, row, step, 0);
        take_step(layer, to, output->channel_pitch);
        layer->h.vector = to;
        layer->h.vector_pitch = output->channel_pitch;
    }
    neutron_copy_line(hidden, 1, layer->h.vector, layer->h.vector_pitch, p->outputs);
}

void unidirectional_sequence_lstm_s8_run(const NeutronKernelCall *call) {
    const NeutronUnidirectionalSequenceLstmS8 *p = call->params;
    const NeutronBuffer *gates = &call->buffers[p->gates];
    Layer layer = {
        .call = call,
        .p = p,
        .x = matrix_of(call, &p->input_weights_base, p->inputs),
        .h = matrix_of(call, &p->hidden_weights_base, p->outputs),
        .projection = matrix_of(call, &p->projection_base, p->cells),
        .coefficients = constant_at(call, p->coefficients_base, p->coefficients_offset),
        .gates = neutron_element_address(call->bases, gates, 0, 0, 0, 0),
    };
    for (int32_t row = call->window.row0; row < call->window.row1; row++) run_sequence(&layer, row);
}
