/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's RESIZE_NEAREST_NEIGHBOR; its float arithmetic has become two maps of positions. */
#include "elements.h"

bool resize_nearest_neighbor_s8_check(const NeutronProgramView *program, const void *params_block,
                                      const NeutronWindowExtents *window) {
    const NeutronResizeNearestNeighborS8 *p = params_block;
    return neutron_maps_are_sound(program, p->input, p->output, p->map_base, p->map_offset, 1, window);
}

void resize_nearest_neighbor_s8_run(const NeutronKernelCall *call) {
    const NeutronResizeNearestNeighborS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const uint8_t *maps = neutron_base_address(call->bases, p->map_base) + p->map_offset;
    const int32_t *row_map = (const int32_t *)(const void *)maps, *col_map = row_map + out->rows;
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        const int32_t row = neutron_bound(row_map[r], 0, in->rows - 1);
        const uint8_t *from = neutron_element_address(call->bases, in, n, row, 0, w->channel0);
        uint8_t *to = neutron_element_address(call->bases, out, n, r, w->col0, w->channel0);
        for (int32_t c = w->col0; c < w->col1; c++) {
            const int32_t col = neutron_bound(col_map[c], 0, in->cols - 1);
            neutron_copy_line(to, out->channel_pitch, from + (ptrdiff_t)col * in->col_pitch, in->channel_pitch,
                              w->channel1 - w->channel0);
            to += out->col_pitch;
        }
    }
}
