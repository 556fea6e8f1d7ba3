/* SPDX-License-Identifier: BSD-3-Clause */
/* The steps of a sequence, one behind the other, and the checks that come before. */
#include "sequences.h"

#include "conv_2d/convolution.h"

/* ---- check ---------------------------------------------------------------------------------------------------------- */

bool neutron_packed_matrix_is_sound(const NeutronProgramView *program, const uint32_t *words, int32_t rows, int32_t inputs,
                                    uint32_t table_block_bytes) {
    if (rows < 1 || rows > NEUTRON_MOST_GATES || inputs < 1 || inputs > NEUTRON_MOST_GATES) return false;
    const uint64_t blocks = neutron_blocks_of(rows);
    const uint64_t block_bytes = neutron_blocks_of(inputs) * NEUTRON_LANES * NEUTRON_LANES;
    return neutron_range_is_sound(program, words[0], words[1], blocks * block_bytes, NEUTRON_ALIGNMENT) &&
           neutron_range_is_sound(program, words[2], words[3], blocks * table_block_bytes, NEUTRON_ALIGNMENT);
}

bool neutron_state_is_sound(const NeutronProgramView *program, uint32_t index, int32_t rows, int32_t channels,
                            int32_t element_bytes) {
    const NeutronBuffer *buffer = neutron_checked_buffer(program, index, true);
    if (buffer == NULL || buffer->rows < rows || buffer->channel_pitch != element_bytes) return false;
    /* The driver has checked the first byte of the last element. */
    return neutron_buffer_holds(buffer, 0, 1, 0, channels) &&
           neutron_last_offset(buffer) + (uint64_t)element_bytes <= neutron_base_size(program, buffer->base, true);
}

bool neutron_sequence_is_sound(const NeutronProgramView *program, const NeutronSequence *p,
                               const NeutronWindowExtents *window, int32_t element_bytes) {
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
           neutron_state_is_sound(program, p->hidden, window->row1, p->outputs, element_bytes) &&
           neutron_state_is_sound(program, p->cell, window->row1, p->cells, 2);
}

/* ---- sequences ------------------------------------------------------------------------------------------------------ */

static void run_sequence(NeutronStep *step, int32_t row, int32_t element_bytes, NeutronTakeStep take_step, void *layer) {
    const NeutronKernelCall *call = step->call;
    const NeutronSequence *p = step->p;
    const NeutronBuffer *input = &call->buffers[p->input], *output = &call->buffers[p->output];
    uint8_t *const hidden = neutron_element_address(call->bases, &call->buffers[p->hidden], 0, row, 0, 0);
    step->cell = neutron_element_address(call->bases, &call->buffers[p->cell], 0, row, 0, 0);
    if (p->starts == 1) {
        memset(hidden, (uint8_t)p->first_hidden, (size_t)p->outputs * (size_t)element_bytes);
        memset(step->cell, 0, 2 * (size_t)p->cells);
    }
    step->x_pitch = input->channel_pitch;
    step->to_pitch = output->channel_pitch;
    step->h = hidden;
    step->h_pitch = element_bytes;
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
    for (int32_t byte = 0; byte < element_bytes; byte++) {
        neutron_copy_line(hidden + byte, element_bytes, step->h + byte, step->h_pitch, p->outputs);
    }
}

void neutron_run_sequences(const NeutronKernelCall *call, int32_t element_bytes, NeutronTakeStep take_step, void *layer) {
    NeutronStep step = {.call = call, .p = call->params};
    for (int32_t row = call->window.row0; row < call->window.row1; row++) {
        run_sequence(&step, row, element_bytes, take_step, layer);
    }
}
