/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies between two memories in the background, with the port's copy and wait; each line of bytes is one transfer. */
#include "elements.h"

bool move_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronMoveS8 *p = params_block;
    const NeutronBuffer *in = neutron_window_buffer(program, p->input, false, window);
    const NeutronBuffer *out = neutron_window_buffer(program, p->output, true, window);
    /* Two bases are two memories, so that no transfer overlaps itself: the port's copy may be memcpy. */
    return in != NULL && out != NULL && in->base != out->base && in->channel_pitch == 1 && out->channel_pitch == 1 &&
           p->channel < NEUTRON_CHANNELS;
}

/* Without a copy callback of the port, the bytes are copied at once, one after the other: the caller's buffers may share memory. */
static void start_line(NeutronBases *bases, uint8_t *to, const uint8_t *from, int32_t length, uint32_t channel) {
    if (bases->config.copy == NULL) {
        for (int32_t i = 0; i < length; i++) to[i] = from[i];
    } else {
        bases->config.copy(to, from, (uint32_t)length, channel);
        bases->channels_open |= 1u << channel;
    }
}

void move_s8_run(const NeutronKernelCall *call) {
    const NeutronMoveS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    int32_t cols = w->col1 - w->col0, length = w->channel1 - w->channel0;
    neutron_join_columns((const NeutronBuffer *const[]){in, out}, 2, &cols, &length);
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        const uint8_t *from = neutron_element_address(call->bases, in, n, r, w->col0, w->channel0);
        uint8_t *to = neutron_element_address(call->bases, out, n, r, w->col0, w->channel0);
        for (int32_t c = 0; c < cols; c++) {
            start_line(call->bases, to, from, length, p->channel);
            from += in->col_pitch;
            to += out->col_pitch;
        }
    }
}
