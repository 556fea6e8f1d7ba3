/* SPDX-License-Identifier: BSD-3-Clause */
/* Elements of two bytes from view to view, in ascending order of batch, row and column: those that are not side by side. */
#include "elements_16.h"

bool copy_s16_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronCopyS16 *p = params_block;
    return neutron_window_elements(program, p->input, false, window, 2) != NULL &&
           neutron_window_elements(program, p->output, true, window, 2) != NULL;
}

/* Elements from `done` on, by blocks of this size, each read whole before it is written. */
static NEUTRON_INLINE int32_t copy_blocks(uint8_t *to, int32_t to_pitch, const uint8_t *from, int32_t from_pitch,
                                          int32_t length, int32_t done, const int32_t size) {
    for (; done <= length - size; done += size) {
        int16_t block[NEUTRON_BLOCK];
        neutron_load_block_16(block, from + (ptrdiff_t)done * from_pitch, from_pitch, size);
        neutron_store_block_16(to + (ptrdiff_t)done * to_pitch, to_pitch, block, size);
    }
    return done;
}

static NEUTRON_INLINE void copy_line(const NeutronKernelCall *call, uint8_t *to, int32_t to_pitch, const uint8_t *from,
                                     int32_t from_pitch, int32_t length) {
    (void)call;
    const int32_t done =
        NEUTRON_BLOCK > 1 ? copy_blocks(to, to_pitch, from, from_pitch, length, 0, NEUTRON_BLOCK) : 0;
    copy_blocks(to, to_pitch, from, from_pitch, length, done, 1);
}

void copy_s16_run(const NeutronKernelCall *call) {
    const NeutronCopyS16 *p = call->params;
    neutron_copy_lines(call, p->input, p->output, copy_line);
}
