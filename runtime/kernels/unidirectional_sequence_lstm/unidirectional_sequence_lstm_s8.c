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

static bool words_are_sound(const NeutronUnidirectionalSequenceLstmS8 *p) {
    return neutron_is_flag(p->starts) && neutron_is_flag(p->cifg) && neutron_is_flag(p->projected) && neutron_is_flag(p->peephole) &&
           neutron_is_flag(p->layer_norm) && (p->projected != 0 || p->outputs == p->cells) && p->cell_shift >= -15 &&
           p->cell_shift <= -9 && p->cell_clip >= 0 && p->cell_clip <= INT16_MAX && p->output_clip >= 0 &&
           p->output_clip <= INT8_MAX && neutron_shift_is_sound(p->hidden_shift) && p->hidden_multiplier >= 0 &&
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

bool unidirectional_sequence_lstm_s8_check(const NeutronProgramView *program, const void *params,
                                           const NeutronWindowExtents *window) {
    const NeutronUnidirectionalSequenceLstmS8 *p = params;
    return neutron_sequence_is_sound(program, params, window, 1) && words_are_sound(p) &&
           neutron_state_is_sound(program, p->gates, 1, GATES * p->cells, 2) && constants_are_sound(program, p);
}

/* ---- run ------------------------------------------------------------------------------------------------------------ */

typedef struct {
    const NeutronUnidirectionalSequenceLstmS8 *p;
    NeutronMatrix x, h, projection;
    const uint8_t *coefficients; /* the next row of them */
    uint8_t *gates, *cell;
#ifdef __linux__
    NeutronSequenceJobs *jobs; /* NULL: none */
#endif
} Layer;

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

/* 1024 * sum / count towards 0, where sum is of `count` numbers of 16 bits: the result has at most 26 bits. Without the
 * compiler's division of 64 bits. */
static int32_t mean_of(int64_t sum, int32_t count) {
    uint64_t rest = (uint64_t)(sum < 0 ? -sum : sum) * 1024;
    int32_t mean = 0;
    for (int32_t bit = 25; bit >= 0; bit--) {
        const uint64_t part = (uint64_t)count << bit;
        if (rest < part) continue;
        rest -= part;
        mean |= INT32_C(1) << bit;
    }
    return sum < 0 ? -mean : mean;
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
    const int32_t mean = mean_of(sum, count);
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

/* The steps between the products of a gate and its function. */
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
        neutron_store_16(layer->cell + at, (int16_t)(clip > 0 ? neutron_bound(sum, -clip, clip) : sum));
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
        neutron_multiply_rows(results, &layer->projection, block, false);
        const int32_t first = (int32_t)block * NEUTRON_LANES;
        for (int32_t k = 0; k < NEUTRON_LANES && first + k < p->outputs; k++) {
            int32_t stored = neutron_bound(results[k], INT8_MIN - zero_point, INT8_MAX - zero_point) + zero_point;
            if (clip > 0) stored = neutron_bound(stored, -clip, clip);
            to[(ptrdiff_t)(first + k) * pitch] = (uint8_t)stored;
        }
    }
}

static void take_step(const NeutronStep *step, void *of) {
    Layer *layer = of;
    const NeutronUnidirectionalSequenceLstmS8 *p = layer->p;
    const int first = p->cifg != 0 ? FORGET : INPUT;
    layer->cell = step->cell;
#ifdef __linux__
    if (layer->jobs != NULL) neutron_next_step(layer->jobs, step);
#endif
    layer->x.vector = step->x;
    layer->x.vector_pitch = step->x_pitch;
    layer->h.vector = step->h;
    layer->h.vector_pitch = step->h_pitch;
    neutron_multiply_gates(layer->gates, (GATES - first) * p->cells, &layer->x, &layer->h);
    for (int gate = first; gate < OUTPUT; gate++) prepare_gate(layer, gate);
    change_cells(layer);
    prepare_gate(layer, OUTPUT);
    if (p->projected == 0) {
        hide_cells(layer, step->to, step->to_pitch);
    } else {
        /* The first gates are not needed any more. */
        hide_cells(layer, layer->gates, 1);
        layer->projection.vector = layer->gates;
        project(layer, step->to, step->to_pitch);
    }
}

static NEUTRON_INLINE Layer layer_of(const NeutronKernelCall *call) {
    const NeutronUnidirectionalSequenceLstmS8 *p = call->params;
    Layer layer = {
        .p = p,
        .x = neutron_matrix_at(call, &p->input_weights_base, p->inputs),
        .h = neutron_matrix_at(call, &p->hidden_weights_base, p->outputs),
        .coefficients = neutron_base_address(call->bases, p->coefficients_base) + p->coefficients_offset,
        .gates = neutron_element_address(call->bases, &call->buffers[p->gates], 0, 0, 0, 0),
    };
    if (p->projected != 0) layer.projection = neutron_matrix_at(call, &p->projection_base, p->cells);
    return layer;
}

void unidirectional_sequence_lstm_s8_run(const NeutronKernelCall *call) {
    Layer layer = layer_of(call);
    neutron_run_sequences(call, 1, take_step, &layer);
}

#ifdef __linux__
void neutron_run_lstm_with_jobs(const NeutronKernelCall *call, NeutronSequenceJobs *jobs) {
    Layer layer = layer_of(call);
    layer.x.jobs = layer.jobs = jobs;
    neutron_run_sequences(call, 1, take_step, &layer);
}
#endif
