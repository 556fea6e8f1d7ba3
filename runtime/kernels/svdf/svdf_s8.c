/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's SVDF on int8 with a state of int16 or int8 (EvalIntegerSVDF of svdf.h): each filter keeps its newest results, and a unit is
 * the sum of the filtered results of its filters. */
#include "gates.h"

enum { MOST = 1 << 18 };

bool svdf_s8_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) {
    const NeutronSvdfS8 *p = params;
    const NeutronBuffer *input = neutron_checked_buffer(program, p->input, false);
    const NeutronBuffer *output = neutron_window_buffer(program, p->output, true, window);
    if (input == NULL || output == NULL || p->inputs < 1 || p->inputs > MOST || p->filters < 1 || p->filters > MOST ||
        p->memory < 1 || p->memory > MOST || p->rank < 1 || p->filters % p->rank != 0 ||
        (p->state_bytes != 1 && p->state_bytes != 2) || !neutron_is_flag(p->starts)) {
        return false;
    }
    const int32_t units = p->filters / p->rank;
    const int64_t held = (int64_t)p->filters * p->memory * p->state_bytes;
    const bool whole = window->batch0 == 0 && window->batch1 == 1 && window->col0 == 0 && window->col1 == 1 &&
                       window->channel0 == 0 && window->channel1 == units && window->row1 <= input->rows;
    return whole && held <= INT32_MAX && neutron_buffer_holds(input, 0, 1, 0, p->inputs) &&
           neutron_state_is_sound(program, p->state, window->row1, (int32_t)held, 1) &&
           (int64_t)p->work >= (int64_t)p->rank * ((int64_t)p->inputs + p->memory) && p->output_multiplier >= 0 &&
           neutron_shift_is_sound(p->output_shift) && neutron_is_stored(p->output_zero_point) &&
           neutron_matrix_is_sound(program, &p->weights_base, p->filters, p->inputs) &&
           neutron_range_is_sound(program, p->time_weights_base, p->time_weights_offset,
                                  (uint64_t)p->filters * (uint64_t)p->memory * 2, NEUTRON_ALIGNMENT) &&
           neutron_range_is_sound(program, p->bias_base, p->bias_offset, (uint64_t)units * 4, NEUTRON_ALIGNMENT);
}

/* The sum over a filter's memory, once `newest` is in it and the oldest result is gone: each result moves by one place. */
static uint32_t filtered(const NeutronSvdfS8 *p, uint8_t *memory, const uint8_t *weights, int32_t newest) {
    const size_t last = (size_t)(p->memory - 1) * (size_t)p->state_bytes;
    const int32_t last_weight = neutron_load_16(weights + 2 * ((ptrdiff_t)p->memory - 1));
    uint32_t sum;
    if (p->state_bytes == 2) {
        const int32_t stored = neutron_bound_16(newest);
        sum = (uint32_t)(stored * last_weight);
        for (uint8_t *const end = memory + last; memory < end; memory += 2, weights += 2) {
            const int32_t moved = neutron_load_16(memory + 2);
            neutron_store_16(memory, (int16_t)moved);
            sum += (uint32_t)(moved * neutron_load_16(weights));
        }
        neutron_store_16(memory, (int16_t)stored);
    } else {
        const int32_t stored = neutron_bound(newest, INT8_MIN, INT8_MAX);
        sum = (uint32_t)(stored * last_weight);
        for (uint8_t *const end = memory + last; memory < end; memory++, weights += 2) {
            *memory = memory[1];
            sum += (uint32_t)((int8_t)*memory * neutron_load_16(weights));
        }
        *memory = (uint8_t)stored;
    }
    return sum;
}

static void run_row(const NeutronKernelCall *call, NeutronMatrix *matrix, int32_t row) {
    const NeutronSvdfS8 *p = call->params;
    const NeutronBuffer *input = &call->buffers[p->input], *output = &call->buffers[p->output];
    const int32_t filter_bytes = p->memory * p->state_bytes, zero_point = p->output_zero_point;
    const uint8_t *weights = neutron_base_address(call->bases, p->time_weights_base) + p->time_weights_offset;
    const uint8_t *bias = neutron_base_address(call->bases, p->bias_base) + p->bias_offset;
    uint8_t *memory = neutron_element_address(call->bases, &call->buffers[p->state], 0, row, 0, 0);
    uint8_t *to = neutron_element_address(call->bases, output, 0, row, 0, 0);
    if (p->starts != 0) memset(memory, 0, (size_t)p->filters * (size_t)filter_bytes);
    matrix->vector = neutron_element_address(call->bases, input, 0, row, 0, 0);
    matrix->vector_pitch = input->channel_pitch;
    int32_t results[NEUTRON_LANES];
    uint32_t sum = 0;
    for (int32_t filter = 0; filter < p->filters; filter++) {
        if (filter % NEUTRON_LANES == 0) neutron_multiply_rows(results, matrix, (size_t)filter / NEUTRON_LANES, false);
        sum += filtered(p, memory, weights, results[filter % NEUTRON_LANES]);
        memory += filter_bytes;
        weights += 2 * (ptrdiff_t)p->memory;
        if ((filter + 1) % p->rank != 0) continue;
        uint32_t added;
        memcpy(&added, bias, sizeof added);
        const int32_t scaled = neutron_requantize((int32_t)(sum + added), p->output_multiplier, p->output_shift);
        *to = (uint8_t)(neutron_bound(scaled, INT8_MIN - zero_point, INT8_MAX - zero_point) + zero_point);
        to += output->channel_pitch;
        bias += sizeof added;
        sum = 0;
    }
}

void svdf_s8_run(const NeutronKernelCall *call) {
    const NeutronSvdfS8 *p = call->params;
    NeutronMatrix matrix = neutron_matrix_at(call, &p->weights_base, p->inputs);
    for (int32_t row = call->window.row0; row < call->window.row1; row++) run_row(call, &matrix, row);
}
