/* SPDX-License-Identifier: BSD-3-Clause */
/* Element by element from view to view, in ascending order of batch, row and column: whatever moves values. */
#include "elements.h"

bool copy_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window);
void copy_s8_run(const NeutronKernelCall *call);

bool copy_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronCopyS8 *p = params_block;
    return neutron_window_buffer(program, p->input, false, window) != NULL &&
           neutron_window_buffer(program, p->output, true, window) != NULL;
}

/* Side of the squares that a transposition goes by, so that lines of a cache are used up before they are evicted. */
enum { TILE = 32 };

/* cols x channels elements whose lines run along the columns on one side and along the channels on the other. */
static void copy_crossed(uint8_t *to, const NeutronBuffer *out, const uint8_t *from, const NeutronBuffer *in,
                         int32_t cols, int32_t channels) {
    for (int32_t c0 = 0; c0 < cols; c0 += TILE) {
        const int32_t c_count = cols - c0 < TILE ? cols - c0 : TILE;
        for (int32_t k0 = 0; k0 < channels; k0 += TILE) {
            const int32_t k_count = channels - k0 < TILE ? channels - k0 : TILE;
            for (int32_t c = c0; c < c0 + c_count; c++) {
                neutron_copy_line(to + (ptrdiff_t)c * out->col_pitch + (ptrdiff_t)k0 * out->channel_pitch,
                                  out->channel_pitch,
                                  from + (ptrdiff_t)c * in->col_pitch + (ptrdiff_t)k0 * in->channel_pitch,
                                  in->channel_pitch, k_count);
            }
        }
    }
}

void copy_s8_run(const NeutronKernelCall *call) {
    const NeutronCopyS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const int32_t channels = w->channel1 - w->channel0;
    int32_t cols = w->col1 - w->col0, length = channels;
    if (neutron_columns_join(in, channels) && neutron_columns_join(out, channels) &&
        neutron_joined_length(cols, channels) > 0) {
        length = neutron_joined_length(cols, channels);
        cols = 1;
    }
    const bool crossed = cols > 1 && (in->channel_pitch > in->col_pitch || out->channel_pitch > out->col_pitch);
    for (int32_t n = w->batch0; n < w->batch1; n++) {
        for (int32_t r = w->row0; r < w->row1; r++) {
            const uint8_t *from = neutron_element_address(call->bases, in, n, r, w->col0, w->channel0);
            uint8_t *to = neutron_element_address(call->bases, out, n, r, w->col0, w->channel0);
            if (crossed) {
                copy_crossed(to, out, from, in, cols, channels);
                continue;
            }
            for (int32_t c = 0; c < cols; c++) {
                neutron_copy_line(to, out->channel_pitch, from, in->channel_pitch, length);
                from += in->col_pitch;
                to += out->col_pitch;
            }
        }
    }
}
