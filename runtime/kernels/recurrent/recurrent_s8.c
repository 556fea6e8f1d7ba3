/* SPDX-License-Identifier: BSD-3-Clause */
/* Recurrent layers that LiteRT has no int8 kernel for: PyTorch's GRU and RNN. Products are rounded to 20 fractional bits, their
 * sum is rounded once to a gate. A GRU keeps its state in int16, so that a state that hardly changes loses nothing. */
#include "gates.h"

enum { GRU, TANH, RELU };
enum { RESET, UPDATE, NEW, GATES };
enum { EXTRA_BITS = 8 }; /* of a sum of products behind those of a gate */
enum { STEP_BITS = 12 }; /* of a sum of products in steps of the output, for RELU */

static int32_t gates_of(const NeutronRecurrentS8 *p) { return p->kind == GRU ? GATES : 1; }

bool recurrent_s8_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) {
    const NeutronRecurrentS8 *p = params;
    if (!neutron_sequence_is_sound(program, params, window, 1) || p->kind < GRU || p->kind > RELU) return false;
    const int32_t rows = gates_of(p) * (int32_t)neutron_blocks_of(p->cells) * NEUTRON_LANES;
    return p->outputs == p->cells && p->state_bits >= 0 && p->state_bits <= 15 && p->output_multiplier >= 0 && neutron_shift_is_sound(p->output_shift) &&
           neutron_is_stored(p->output_zero_point) && p->state_multiplier >= 0 && neutron_shift_is_sound(p->state_shift) &&
           neutron_matrix_is_sound(program, &p->input_weights_base, rows, p->inputs) &&
           neutron_matrix_is_sound(program, &p->hidden_weights_base, rows, p->outputs);
}

typedef struct {
    const NeutronRecurrentS8 *p;
    NeutronMatrix x, h;
#ifdef __linux__
    NeutronSequenceJobs *jobs; /* NULL: none */
#endif
} Layer;

/* A sum of products as a gate in front of its function. */
static int32_t gate_of(int64_t sum) {
    const int32_t most = INT16_MAX << EXTRA_BITS;
    const int32_t bounded = sum > most ? most : (sum < -most ? -most : (int32_t)sum);
    return neutron_rounding_shift_right(bounded, EXTRA_BITS);
}

/* The next state of a unit from the products of its gates. */
static int32_t next_state(const NeutronRecurrentS8 *p, int32_t old, const int32_t *x, const int32_t *h) {
    const int32_t reset = neutron_logistic_16(gate_of((int64_t)x[RESET] + h[RESET]));
    const int32_t update = neutron_logistic_16(gate_of((int64_t)x[UPDATE] + h[UPDATE]));
    const int64_t seen = ((int64_t)reset * h[NEW] + (1 << 14)) >> 15;
    const int32_t new = neutron_rounding_shift_right(neutron_tanh_16(gate_of(x[NEW] + seen), 3), 15 - p->state_bits);
    return neutron_bound_16(new + neutron_rounding_shift_right(update * (old - new), 15));
}

static int32_t stored(const NeutronRecurrentS8 *p, int32_t steps) {
    return neutron_bound(steps, INT8_MIN - p->output_zero_point, INT8_MAX - p->output_zero_point) + p->output_zero_point;
}

static int32_t output_of(const NeutronRecurrentS8 *p, uint8_t *cell, const int32_t *x, const int32_t *h) {
    if (p->kind == RELU) {
        const int64_t sum = (int64_t)x[0] + h[0], most = INT16_MAX << STEP_BITS;
        const int32_t bounded = sum > most ? (int32_t)most : (sum < 0 ? 0 : (int32_t)sum);
        return stored(p, neutron_rounding_shift_right(bounded, STEP_BITS));
    }
    const int32_t state = p->kind == GRU ? next_state(p, neutron_load_16(cell), x, h)
                                         : neutron_tanh_16(gate_of((int64_t)x[0] + h[0]), 3);
    neutron_store_16(cell, (int16_t)state);
    return stored(p, neutron_requantize(state, p->output_multiplier, p->output_shift));
}

/* The units' state of a sequence that begins with a hidden state. */
static void take_hidden_state(const NeutronStep *step, const NeutronRecurrentS8 *p) {
    for (ptrdiff_t i = 0; i < p->cells; i++) {
        const int32_t steps = (int8_t)step->h[i * step->h_pitch] - p->output_zero_point;
        const int32_t state = neutron_requantize(steps, p->state_multiplier, p->state_shift);
        neutron_store_16(step->cell + 2 * i, neutron_bound_16(state));
    }
}

static void take_step(const NeutronStep *step, void *of) {
    Layer *layer = of;
    const NeutronRecurrentS8 *p = layer->p;
    const size_t blocks = neutron_blocks_of(p->cells), gates = (size_t)gates_of(p);
#ifdef __linux__
    if (layer->jobs != NULL) neutron_next_step(layer->jobs, step);
#endif
    layer->x.vector = step->x;
    layer->x.vector_pitch = step->x_pitch;
    layer->h.vector = step->h;
    layer->h.vector_pitch = step->h_pitch;
    if (step->is_first && p->starts == 2) take_hidden_state(step, p);
    for (size_t block = 0; block < blocks; block++) {
        int32_t x[GATES][NEUTRON_LANES], h[GATES][NEUTRON_LANES];
        for (size_t gate = 0; gate < gates; gate++) {
            neutron_multiply_rows(x[gate], &layer->x, gate * blocks + block, true);
            neutron_multiply_rows(h[gate], &layer->h, gate * blocks + block, true);
        }
        const int32_t first = (int32_t)block * NEUTRON_LANES;
        for (int32_t k = 0; k < NEUTRON_LANES && first + k < p->cells; k++) {
            int32_t of_x[GATES], of_h[GATES];
            for (size_t gate = 0; gate < gates; gate++) {
                of_x[gate] = x[gate][k];
                of_h[gate] = h[gate][k];
            }
            const int32_t output = output_of(p, step->cell + 2 * (ptrdiff_t)(first + k), of_x, of_h);
            step->to[(ptrdiff_t)(first + k) * step->to_pitch] = (uint8_t)output;
        }
    }
}

static NEUTRON_INLINE Layer layer_of(const NeutronKernelCall *call) {
    const NeutronRecurrentS8 *p = call->params;
    Layer layer = {
        .p = p,
        .x = neutron_matrix_at(call, &p->input_weights_base, p->inputs),
        .h = neutron_matrix_at(call, &p->hidden_weights_base, p->outputs),
    };
    return layer;
}

void recurrent_s8_run(const NeutronKernelCall *call) {
    Layer layer = layer_of(call);
    neutron_run_sequences(call, 1, take_step, &layer);
}

#ifdef __linux__
void neutron_run_recurrent_with_jobs(const NeutronKernelCall *call, NeutronSequenceJobs *jobs) {
    Layer layer = layer_of(call);
    layer.x.jobs = layer.jobs = jobs;
    neutron_run_sequences(call, 1, take_step, &layer);
}
#endif
