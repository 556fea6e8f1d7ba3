/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_1x1_s8 for NEON. */
#include "conv_2d/neon.h"

#if NEUTRON_NEON_VARIANTS

bool conv_2d_1x1_s8_run_neon(const NeutronKernelCall *call) {
    const NeutronConv2d1x1S8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    if (call->buffers[p->input].channel_pitch != 1 || call->buffers[p->output].channel_pitch != 1) return false;
    const size_t block_bytes = neutron_blocks_of(p->group_inputs) * NEUTRON_LANES * NEUTRON_LANES;
    const size_t first_block = (size_t)(w->channel0 - p->constant_channel0) / NEUTRON_LANES;
    const int8_t *weights = neutron_packed_weights(call, p) + first_block * block_bytes;
    const NeutronRequantBlock *table = neutron_requant_blocks(call, p) + first_block;
    const bool joined = neutron_pixels_join(call);
    const int64_t step = neutron_tile_pixels(p->group_inputs);
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        const NeutronLine row = neutron_line_of_row(call, n, r, w->channel0, joined);
        for (int64_t first = 0; first < row.pixels; first += step) {
            NeutronLine line = row;
            line.in += first * row.in_pitch;
            line.out += first * row.out_pitch;
            line.pixels = row.pixels - first < step ? row.pixels - first : step;
            neutron_compute_line_neon(p, &line, p->group_inputs, weights, block_bytes, table, w->channel1 - w->channel0);
        }
        if (joined) break;
    }
    return true;
}

#endif
