/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions of a gate are gemmlowp's fixed point (fixedpoint.h) on int16, rounding step by rounding step, as LiteRT's
 * portable_tensor_utils.cc calls it. */
#include "gates.h"

static void add_products(uint32_t *accumulators, const NeutronMatrix *matrix, size_t block) {
    const size_t block_bytes = neutron_blocks_of(matrix->inputs) * NEUTRON_LANES * NEUTRON_LANES;
    const NeutronRequantBlock *table = matrix->table + block;
    NeutronSums sums = {0};
    for (int k = 0; k < NEUTRON_LANES; k++) accumulators[k] = (uint32_t)table->bias[k];
    neutron_multiply_pixel(&sums, matrix->weights + block * block_bytes, matrix->vector, matrix->vector_pitch,
                           matrix->inputs);
    neutron_add_sums(accumulators, &sums);
}

void neutron_multiply_rows(int32_t *results, const NeutronMatrix *matrix, size_t block) {
    const NeutronRequantBlock *table = matrix->table + block;
    uint32_t accumulators[NEUTRON_LANES];
    add_products(accumulators, matrix, block);
    for (int k = 0; k < NEUTRON_LANES; k++) {
        const int32_t multiplier = neutron_sound_multiplier(table->multiplier[k]);
        results[k] = neutron_rounded_twice((int32_t)accumulators[k], multiplier, table->shift[k]);
    }
}

void neutron_multiply_rows_once(int32_t *results, const NeutronMatrix *matrix, size_t block) {
    const NeutronRequantBlock *table = matrix->table + block;
    uint32_t accumulators[NEUTRON_LANES];
    add_products(accumulators, matrix, block);
    for (int k = 0; k < NEUTRON_LANES; k++) {
        const int32_t multiplier = neutron_sound_multiplier(table->multiplier[k]);
        results[k] = neutron_rounded_once((int32_t)accumulators[k], multiplier, table->shift[k] & 0xFF);
    }
}

NeutronMatrix neutron_matrix_at(const NeutronKernelCall *call, const uint32_t *words, int32_t inputs) {
    const void *weights = neutron_base_address(call->bases, words[0]) + words[1];
    const void *table = neutron_base_address(call->bases, words[2]) + words[3];
    return (NeutronMatrix){weights, table, NULL, 1, inputs};
}

void neutron_multiply_gates(uint8_t *gates, int32_t rows, const NeutronMatrix *x, const NeutronMatrix *h) {
    const int32_t far = 1 << 30; /* a sum with an int16 stays inside 32 bits */
    for (size_t block = 0; block < neutron_blocks_of(rows); block++) {
        const int32_t first = (int32_t)block * NEUTRON_LANES, left = rows - first;
        int32_t of_x[NEUTRON_LANES], of_h[NEUTRON_LANES];
        neutron_multiply_rows(of_x, x, block);
        neutron_multiply_rows(of_h, h, block);
        for (int32_t k = 0; k < NEUTRON_LANES && k < left; k++) {
            const int32_t sum = neutron_bound_16(of_x[k]) + neutron_bound(of_h[k], -far, far);
            neutron_store_16(gates + 2 * (ptrdiff_t)(first + k), neutron_bound_16(sum));
        }
    }
}

/* ---- fixed point ---------------------------------------------------------------------------------------------------- */

/* a * b / 2^15, halves away from 0; the numbers are int16. */
static inline int32_t product(int32_t a, int32_t b) {
    const int32_t exact = a * b;
    const int32_t rounded = (exact + (exact >= 0 ? 1 << 14 : 1 - (1 << 14))) / (1 << 15);
    return rounded > INT16_MAX ? INT16_MAX : rounded;
}

static inline int32_t wrapped(int32_t x) { return (int16_t)(uint16_t)x; }

static inline int32_t shifted_left(int32_t x, int32_t bits) { return neutron_bound_16(x * (1 << bits)); }

enum { ONE = INT16_MAX };

/* exp(x) for x in [-1/4, 0), 15 fractional bits. */
static int32_t exp_below_one_quarter(int32_t a) {
    const int32_t center = 28918 /* exp(-1/8) */, third = 10923;
    const int32_t x = a + (1 << 12), x2 = product(x, x), x3 = product(x2, x), x4 = product(x2, x2);
    const int32_t cubes = wrapped(neutron_rounding_shift_right(x4, 2) + x3);
    const int32_t rest = neutron_rounding_shift_right(wrapped(product(cubes, third) + x2), 1);
    return neutron_bound_16(center + product(center, wrapped(x + rest)));
}

/* exp(a) with 15 fractional bits for a <= 0 with so many integer bits. */
static int32_t exp_on_negative_values(int32_t a, int32_t integer_bits) {
    static const int16_t powers[7] = {25520, 19875, 12055, 4435, 600, 11, 0}; /* exp(-1/4), exp(-1/2) ... exp(-16) */
    const int32_t fraction_bits = 15 - integer_bits, quarter = 1 << (fraction_bits - 2);
    const int32_t within = (a & (quarter - 1)) - quarter;
    const int32_t remainder = within - a;
    int32_t result = exp_below_one_quarter(shifted_left(within, integer_bits));
    if (a == 0) return ONE;
    if (integer_bits > 5 && a < -(32 << fraction_bits)) return 0;
    for (int32_t i = 0; i < integer_bits + 2 && i < 7; i++) {
        if ((remainder & quarter << i) != 0) result = product(result, powers[i]);
    }
    return result;
}

/* 2 / (1 + a) for a in [0, 1], 13 fractional bits, by three steps of Newton's method. */
static int32_t reciprocal(int32_t a) {
    const int32_t from = 23130 /* 48/17 */, slope = -15420 /* -32/17 */;
    const int32_t sum = a + ONE, half = (sum + (sum >= 0 ? 1 : -1)) / 2;
    int32_t x = wrapped(from + product(half, slope));
    for (int i = 0; i < 3; i++) {
        const int32_t error = wrapped((1 << 13) - product(half, x));
        x = wrapped(x + shifted_left(product(x, error), 2));
    }
    return x;
}

int32_t neutron_logistic_16(int32_t x) {
    const int32_t magnitude = wrapped(x > 0 ? x : -x);
    if (x == 0) return 1 << 14;
    const int32_t result = shifted_left(reciprocal(exp_on_negative_values(wrapped(-magnitude), 3)), 1);
    return x > 0 ? result : wrapped(ONE - result);
}

int32_t neutron_tanh_16(int32_t x, int32_t integer_bits) {
    if (x == 0) return 0;
    /* The same word with one integer bit more is twice the number. */
    const int32_t power = exp_on_negative_values(x < 0 ? x : -x, integer_bits + 1);
    const int32_t result = shifted_left(wrapped(reciprocal(power) - (1 << 13)), 2);
    return x < 0 ? wrapped(-result) : result;
}

/* ---- check ---------------------------------------------------------------------------------------------------------- */

bool neutron_matrix_is_sound(const NeutronProgramView *program, const uint32_t *words, int32_t rows, int32_t inputs) {
    if (rows < 1 || rows > NEUTRON_MOST_GATES || inputs < 1 || inputs > NEUTRON_MOST_GATES) return false;
    const uint64_t blocks = neutron_blocks_of(rows);
    const uint64_t block_bytes = neutron_blocks_of(inputs) * NEUTRON_LANES * NEUTRON_LANES;
    return neutron_range_is_sound(program, words[0], words[1], blocks * block_bytes, NEUTRON_ALIGNMENT) &&
           neutron_range_is_sound(program, words[2], words[3], blocks * sizeof(NeutronRequantBlock), NEUTRON_ALIGNMENT);
}

bool neutron_state_is_sound(const NeutronProgramView *program, uint32_t index, int32_t rows, int32_t channels,
                            int32_t element_bytes) {
    const NeutronBuffer *buffer = neutron_checked_buffer(program, index, true);
    if (buffer == NULL || buffer->rows < rows || buffer->channel_pitch != element_bytes) return false;
    /* The driver has checked the first byte of the last element. */
    const uint64_t last = buffer->offset + (uint64_t)(buffer->batches - 1) * (uint64_t)buffer->batch_pitch +
                          (uint64_t)(buffer->ring - 1) * (uint64_t)buffer->row_pitch +
                          (uint64_t)(buffer->cols_held - 1) * (uint64_t)buffer->col_pitch +
                          (uint64_t)(buffer->channels_held - 1) * (uint64_t)buffer->channel_pitch;
    return neutron_buffer_holds(buffer, 0, 1, 0, channels) &&
           last + (uint64_t)element_bytes <= neutron_base_size(program, buffer->base, true);
}

bool neutron_sequence_is_sound(const NeutronProgramView *program, const NeutronSequence *p,
                               const NeutronWindowExtents *window) {
    const int32_t most = NEUTRON_MOST_GATES / 4;
    if (p->inputs < 1 || p->inputs > most || p->cells < 1 || p->cells > most || p->outputs < 1 || p->outputs > most ||
        !neutron_is_flag(p->backwards) || p->starts < 0 || p->starts > 2 || !neutron_is_stored(p->first_hidden)) {
        return false;
    }
    const NeutronBuffer *input = neutron_checked_buffer(program, p->input, false);
    const NeutronBuffer *output = neutron_window_buffer(program, p->output, true, window);
    if (input == NULL || output == NULL) return false;
    const bool whole = window->batch0 == 0 && window->batch1 == 1 && window->col0 == 0 && window->col1 == output->cols &&
                       window->channel0 == 0 && window->channel1 == p->outputs && output->channels == p->outputs;
    const int64_t products = (int64_t)p->cells * ((int64_t)p->inputs + p->outputs);
    return whole && (int64_t)p->work * p->outputs >= products && window->row1 <= input->rows &&
           neutron_buffer_holds(input, 0, output->cols, 0, p->inputs) &&
           neutron_state_is_sound(program, p->hidden, window->row1, p->outputs, 1) &&
           neutron_state_is_sound(program, p->cell, window->row1, p->cells, 2);
}

/* ---- sequences ------------------------------------------------------------------------------------------------------ */

static void run_sequence(NeutronStep *step, int32_t row, NeutronTakeStep take_step, void *layer) {
    const NeutronKernelCall *call = step->call;
    const NeutronSequence *p = step->p;
    const NeutronBuffer *input = &call->buffers[p->input], *output = &call->buffers[p->output];
    uint8_t *const hidden = neutron_element_address(call->bases, &call->buffers[p->hidden], 0, row, 0, 0);
    step->cell = neutron_element_address(call->bases, &call->buffers[p->cell], 0, row, 0, 0);
    if (p->starts == 1) {
        memset(hidden, (uint8_t)p->first_hidden, (size_t)p->outputs);
        memset(step->cell, 0, 2 * (size_t)p->cells);
    }
    step->x_pitch = input->channel_pitch;
    step->to_pitch = output->channel_pitch;
    step->h = hidden;
    step->h_pitch = 1;
    const int32_t steps = call->window.col1;
    for (int32_t i = 0; i < steps; i++) {
        const int32_t place = p->backwards != 0 ? steps - 1 - i : i;
        step->x = neutron_element_address(call->bases, input, 0, row, place, 0);
        step->to = neutron_element_address(call->bases, output, 0, row, place, 0);
        step->is_first = i == 0;
        take_step(step, layer);
        step->h = step->to;
        step->h_pitch = step->to_pitch;
    }
    neutron_copy_line(hidden, 1, step->h, step->h_pitch, p->outputs);
}

void neutron_run_sequences(const NeutronKernelCall *call, NeutronTakeStep take_step, void *layer) {
    NeutronStep step = {.call = call, .p = call->params};
    for (int32_t row = call->window.row0; row < call->window.row1; row++) run_sequence(&step, row, take_step, layer);
}
