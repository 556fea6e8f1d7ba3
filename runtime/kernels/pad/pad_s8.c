/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's PAD and PADV2. */
#include "elements.h"

typedef struct {
    int32_t first, end;
} Range;

/* The part of output positions [first, end) that is behind `before` positions of padding and inside the next `extent` positions,
 * as positions of the output. before and extent are not negative. */
static Range inside(int32_t first, int32_t end, int32_t before, int32_t extent) {
    const int64_t behind = (int64_t)before + extent;
    Range range = {first > before ? first : before, behind < end ? (int32_t)behind : end};
    if (range.first >= range.end) range.first = range.end = end;
    return range;
}

bool pad_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronPadS8 *p = params_block;
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    if (in == NULL || neutron_window_buffer(program, p->output, true, window) == NULL) return false;
    if (p->pad_batch < 0 || p->pad_top < 0 || p->pad_left < 0 || p->pad_channel < 0) return false;
    const Range cols = inside(window->col0, window->col1, p->pad_left, in->cols);
    const Range channels = inside(window->channel0, window->channel1, p->pad_channel, in->channels);
    return cols.first == cols.end || channels.first == channels.end ||
           neutron_buffer_holds(in, cols.first - p->pad_left, cols.end - p->pad_left, channels.first - p->pad_channel,
                                channels.end - p->pad_channel);
}

/* Columns [first, end) of an output row with the value. */
static void fill_columns(uint8_t *row, const NeutronBuffer *out, int32_t first, int32_t end, int32_t channels,
                         uint8_t value) {
    const int32_t joined = neutron_joined_length(end - first, channels);
    if (joined > 0 && neutron_columns_join(out, channels)) {
        neutron_fill_line(row + (ptrdiff_t)first * out->col_pitch, out->channel_pitch, value, joined);
        return;
    }
    for (int32_t c = first; c < end; c++) {
        neutron_fill_line(row + (ptrdiff_t)c * out->col_pitch, out->channel_pitch, value, channels);
    }
}

void pad_s8_run(const NeutronKernelCall *call) {
    const NeutronPadS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const uint8_t value = (uint8_t)p->value;
    const int32_t channels = w->channel1 - w->channel0;
    const Range batches = inside(w->batch0, w->batch1, p->pad_batch, in->batches);
    const Range rows = inside(w->row0, w->row1, p->pad_top, in->rows);
    const Range cols = inside(w->col0, w->col1, p->pad_left, in->cols);
    const Range inner = inside(w->channel0, w->channel1, p->pad_channel, in->channels);
    const int32_t copied = inner.end - inner.first;
    const bool any = cols.first < cols.end && copied > 0;
    const bool joined = any && copied == channels && neutron_columns_join(in, channels) &&
                        neutron_columns_join(out, channels) &&
                        neutron_joined_length(cols.end - cols.first, channels) > 0;
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        uint8_t *row = neutron_element_address(call->bases, out, n, r, 0, w->channel0);
        if (!any || n < batches.first || n >= batches.end || r < rows.first || r >= rows.end) {
            fill_columns(row, out, w->col0, w->col1, channels, value);
            continue;
        }
        const uint8_t *from = neutron_element_address(call->bases, in, n - p->pad_batch, r - p->pad_top,
                                                      cols.first - p->pad_left, inner.first - p->pad_channel);
        fill_columns(row, out, w->col0, cols.first, channels, value);
        uint8_t *to = row + (ptrdiff_t)cols.first * out->col_pitch;
        if (joined) {
            neutron_copy_line(to, out->channel_pitch, from, in->channel_pitch,
                              neutron_joined_length(cols.end - cols.first, channels));
        } else {
            for (int32_t c = cols.first; c < cols.end; c++) {
                uint8_t *middle = to + (ptrdiff_t)(inner.first - w->channel0) * out->channel_pitch;
                neutron_fill_line(to, out->channel_pitch, value, inner.first - w->channel0);
                neutron_copy_line(middle, out->channel_pitch, from, in->channel_pitch, copied);
                neutron_fill_line(middle + (ptrdiff_t)copied * out->channel_pitch, out->channel_pitch, value,
                                  w->channel1 - inner.end);
                from += in->col_pitch;
                to += out->col_pitch;
            }
        }
        fill_columns(row, out, cols.end, w->col1, channels, value);
    }
}
