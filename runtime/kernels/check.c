/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of buffers and ranges for the driver and every kernel. Words come from the microcode and may be
 * anything: sums and products are made wide enough that none of them can overflow. */
#define NEUTRON_SMALL_FILE

#include "elements.h"

uint32_t neutron_base_size(const NeutronProgramView *program, uint32_t base, bool writable) {
    const uint32_t index = base >> 8;
    const uint32_t kind = base & 0xFFu;
    if (kind == NEUTRON_BASE_INPUT) return !writable && index < program->input_count ? program->bindings[index].size : 0;
    if (kind == NEUTRON_BASE_OUTPUT) {
        return index < program->output_count ? program->bindings[program->input_count + index].size : 0;
    }
    if (index != 0 || kind > NEUTRON_LAST_BASE || (writable && kind == NEUTRON_BASE_WEIGHTS)) return 0;
    return neutron_area_size(program, kind);
}

static bool held_range_is_sound(int32_t first, int32_t held, int32_t extent) {
    return first >= 0 && held >= 1 && extent >= 1 && held <= extent && first <= extent - held;
}

bool neutron_buffer_is_sound(const NeutronProgramView *program, const NeutronBuffer *buffer) {
    if (buffer->batches < 1 || !held_range_is_sound(0, buffer->ring, buffer->rows) ||
        !held_range_is_sound(buffer->col0, buffer->cols_held, buffer->cols) ||
        !held_range_is_sound(buffer->channel0, buffer->channels_held, buffer->channels)) {
        return false;
    }
    if (buffer->batch_pitch < 0 || buffer->row_pitch < 0 || buffer->col_pitch < 0 || buffer->channel_pitch < 0) {
        return false;
    }
    const uint64_t last = neutron_last_offset(buffer);
    /* A kernel's own sums in a column and a channel, counted from column 0 and channel 0, stay inside an int32_t. */
    const uint64_t in_row = neutron_span(buffer->col0 + buffer->cols_held, buffer->col_pitch) +
                            neutron_span(buffer->channel0 + buffer->channels_held, buffer->channel_pitch);
    return last < neutron_base_size(program, buffer->base, false) && last <= INT32_MAX && in_row <= INT32_MAX;
}

const NeutronBuffer *neutron_checked_buffer(const NeutronProgramView *program, uint32_t index, bool writable) {
    if (index >= program->buffer_count) return NULL;
    const NeutronBuffer *buffer = &program->buffers[index];
    return neutron_base_size(program, buffer->base, writable) != 0 ? buffer : NULL;
}

bool neutron_buffer_holds(const NeutronBuffer *buffer, int32_t col0, int32_t col1, int32_t channel0, int32_t channel1) {
    const bool cols = col0 >= col1 || (col0 >= buffer->col0 && col1 <= buffer->col0 + buffer->cols_held);
    const bool channels =
        channel0 >= channel1 || (channel0 >= buffer->channel0 && channel1 <= buffer->channel0 + buffer->channels_held);
    return cols && channels;
}

bool neutron_range_is_sound(const NeutronProgramView *program, uint32_t base, uint32_t offset, uint64_t size,
                            uint32_t alignment) {
    const uint32_t kind = base & 0xFFu;
    /* The caller's own buffers may have any address, so nothing in them is aligned. */
    if (alignment > 1 && (kind == NEUTRON_BASE_INPUT || kind == NEUTRON_BASE_OUTPUT)) return false;
    const uint32_t available = neutron_base_size(program, base, false);
    return offset % alignment == 0 && offset <= available && size <= available - offset;
}

const NeutronBuffer *neutron_window_buffer(const NeutronProgramView *program, uint32_t index, bool writable,
                                           const NeutronWindowExtents *window) {
    const NeutronBuffer *buffer = neutron_checked_buffer(program, index, writable);
    if (buffer == NULL || window->batch1 > buffer->batches || window->row1 > buffer->rows) return NULL;
    const bool held = neutron_buffer_holds(buffer, window->col0, window->col1, window->channel0, window->channel1);
    return held ? buffer : NULL;
}

bool neutron_two_operands_are_sound(const NeutronProgramView *program, uint32_t a, uint32_t b, uint32_t output,
                                    const NeutronWindowExtents *window) {
    return neutron_window_buffer(program, a, false, window) != NULL &&
           neutron_window_buffer(program, b, false, window) != NULL &&
           neutron_window_buffer(program, output, true, window) != NULL;
}
