/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's GATHER of rows of a table that stays in another memory: the port copies the rows that indices name, and no others. */
#include "../gather/indices.h"

bool embedding_lookup_s8_check(const NeutronProgramView *program, const void *params_block,
                               const NeutronWindowExtents *window) {
    const NeutronEmbeddingLookupS8 *p = params_block;
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    const NeutronBuffer *indices = neutron_checked_buffer(program, p->indices, false);
    const NeutronBuffer *out = neutron_window_buffer(program, p->output, true, window);
    if (in == NULL || indices == NULL || out == NULL) return false;
    if (window->batch1 > indices->batches || window->row1 > indices->rows) return false;
    /* As in move_s8, two bases are two memories. An entry of the table is in its only row or in its only column. */
    return in->base != out->base && in->channel_pitch == 1 && out->channel_pitch == 1 && p->channel < NEUTRON_CHANNELS &&
           (in->rows == 1 || in->cols == 1) && neutron_indices_are_sound(indices, window->col0, window->col1) &&
           neutron_buffer_holds(in, 0, in->cols, window->channel0, window->channel1);
}

void embedding_lookup_s8_run(const NeutronKernelCall *call) {
    const NeutronEmbeddingLookupS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const NeutronBuffer *indices = &call->buffers[p->indices];
    NeutronBases *bases = call->bases;
    const int32_t size = w->channel1 - w->channel0;
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        for (int32_t c = w->col0; c < w->col1; c++) {
            const int32_t index = neutron_index_at(call, indices, n, r, c, (int64_t)in->rows * in->cols);
            if (index < 0) return;
            uint8_t *to = neutron_element_address(bases, out, n, r, c, w->channel0);
            const int32_t row = in->cols == 1 ? index : 0, col = in->cols == 1 ? 0 : index;
            const uint8_t *from = neutron_element_address(bases, in, 0, row, col, w->channel0);
            if (bases->config.copy == NULL) {
                neutron_copy_line(to, 1, from, 1, size);
            } else {
                bases->config.copy(to, from, (uint32_t)size, p->channel);
                bases->channels_open |= 1u << p->channel;
            }
        }
    }
    if ((bases->channels_open >> p->channel & 1u) == 0) return;
    if (bases->config.wait != NULL) bases->config.wait(p->channel);
    bases->channels_open &= ~(1u << p->channel);
}
