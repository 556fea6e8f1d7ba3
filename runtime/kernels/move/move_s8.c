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
static NEUTRON_INLINE void start_line(const NeutronKernelCall *call, uint8_t *to, int32_t to_pitch, const uint8_t *from,
                                      int32_t from_pitch, int32_t length) {
    const NeutronMoveS8 *p = call->params;
    NeutronBases *bases = call->bases;
    (void)to_pitch, (void)from_pitch;
    if (bases->config.copy == NULL) {
        for (int32_t i = 0; i < length; i++) to[i] = from[i];
    } else {
        bases->config.copy(to, from, (uint32_t)length, p->channel);
        bases->channels_open |= 1u << p->channel;
    }
}

void move_s8_run(const NeutronKernelCall *call) {
    const NeutronMoveS8 *p = call->params;
    neutron_copy_lines(call, p->input, p->output, start_line);
}
