/* SPDX-License-Identifier: BSD-3-Clause */
/* Each element through a table of 256: LiteRT's operators of one int8 operand. */
#include "elements.h"

bool lookup_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window);
void lookup_s8_run(const NeutronKernelCall *call);

bool lookup_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronLookupS8 *p = params_block;
    return neutron_window_buffer(program, p->input, false, window) != NULL &&
           neutron_window_buffer(program, p->output, true, window) != NULL &&
           neutron_range_is_sound(program, p->table_base, p->table_offset, 256, 1);
}

static void look_up_line(uint8_t *to, ptrdiff_t to_pitch, const uint8_t *from, ptrdiff_t from_pitch,
                         const uint8_t *table, int32_t count) {
    /* Stored value + 128 is the byte with its highest bit turned. */
    if (to_pitch == 1 && from_pitch == 1) {
        for (int32_t i = 0; i < count; i++) to[i] = table[from[i] ^ 0x80u];
    } else {
        for (int32_t i = 0; i < count; i++) to[i * to_pitch] = table[from[i * from_pitch] ^ 0x80u];
    }
}

void lookup_s8_run(const NeutronKernelCall *call) {
    const NeutronLookupS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const uint8_t *table = neutron_base_address(call->bases, p->table_base) + p->table_offset;
    const int32_t channels = w->channel1 - w->channel0;
    int32_t cols = w->col1 - w->col0, length = channels;
    if (neutron_columns_join(in, channels) && neutron_columns_join(out, channels) &&
        neutron_joined_length(cols, channels) > 0) {
        length = neutron_joined_length(cols, channels);
        cols = 1;
    }
    for (int32_t n = w->batch0; n < w->batch1; n++) {
        for (int32_t r = w->row0; r < w->row1; r++) {
            const uint8_t *from = neutron_element_address(call->bases, in, n, r, w->col0, w->channel0);
            uint8_t *to = neutron_element_address(call->bases, out, n, r, w->col0, w->channel0);
            for (int32_t c = 0; c < cols; c++) {
                look_up_line(to, out->channel_pitch, from, in->channel_pitch, table, length);
                from += in->col_pitch;
                to += out->col_pitch;
            }
        }
    }
}
