/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's GATHER (reference/gather.h) with indices that come with the data. LiteRT takes none below 0; here they count
 * from the end, as in PyTorch's indexing. */
#include "indices.h"

bool gather_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronGatherS8 *p = params_block;
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    const NeutronBuffer *indices = neutron_checked_buffer(program, p->indices, false);
    const NeutronBuffer *out = neutron_window_buffer(program, p->output, true, window);
    if (in == NULL || indices == NULL || out == NULL) return false;
    if (window->batch1 > in->batches || window->row1 > in->rows || window->batch1 > indices->batches) return false;
    return neutron_indices_are_sound(indices, window->col0, window->col1) &&
           neutron_buffer_holds(in, 0, in->cols, window->channel0, window->channel1);
}

void gather_s8_run(const NeutronKernelCall *call) {
    const NeutronGatherS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const NeutronBuffer *indices = &call->buffers[p->indices];
    for (int32_t n = w->batch0; n < w->batch1; n++) {
        for (int32_t c = w->col0; c < w->col1; c++) {
            const int32_t index = neutron_index_at(call, indices, n, 0, c, in->cols);
            if (index < 0) return;
            for (int32_t r = w->row0; r < w->row1; r++) {
                neutron_copy_line(neutron_element_address(call->bases, out, n, r, c, w->channel0), out->channel_pitch,
                                  neutron_element_address(call->bases, in, n, r, index, w->channel0),
                                  in->channel_pitch, w->channel1 - w->channel0);
            }
        }
    }
}
