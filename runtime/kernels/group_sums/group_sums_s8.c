/* SPDX-License-Identifier: BSD-3-Clause */
/* The first pass of a group norm: sums of blocks of rows, in any order and any stripes. */
#include <string.h>

#include "sums.h"

bool group_sums_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronGroupSumsS8 *p = params_block;
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    const NeutronBuffer *out = neutron_window_elements(program, p->output, true, window, 1);
    if (in == NULL || out == NULL || p->group_channels < 1 || in->channels % p->group_channels != 0) return false;
    const int32_t groups = in->channels / p->group_channels;
    if (!neutron_holds_sums(out, groups) || window->col0 != 0 || window->channel0 != 0 || p->block_rows < 1) return false;
    if (window->channel1 < groups * (int32_t)sizeof(NeutronGroupSums)) return false;
    const int64_t places = (int64_t)p->block_rows * in->cols;
    if (places > MOST_NORMALIZED || places * p->group_channels > MOST_NORMALIZED) return false;
    if ((int64_t)(window->row1 - 1) * p->block_rows >= in->rows) return false;
    const int64_t end = (int64_t)window->row1 * p->block_rows;
    const NeutronWindowExtents read = {
        window->batch0, window->batch1, window->row0 * p->block_rows, end < in->rows ? (int32_t)end : in->rows, 0, in->cols,
        0,              in->channels};
    return neutron_window_elements(program, p->input, false, &read, 1) != NULL && neutron_is_stored(p->input_zero_point);
}

void group_sums_s8_run(const NeutronKernelCall *call) {
    const NeutronGroupSumsS8 *p = call->params;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const int32_t size = p->group_channels;
    NEUTRON_FOR_EACH_ROW(&call->window, n, block) {
        uint8_t *to = neutron_element_address(call->bases, out, n, block, 0, 0);
        const int32_t begin = block * p->block_rows;
        const int32_t end = begin < in->rows - p->block_rows ? begin + p->block_rows : in->rows;
        for (int32_t first = 0; first < in->channels; first += size, to += sizeof(NeutronGroupSums)) {
            NeutronNormSums sums = {0, 0};
            neutron_norm_add_rows(&sums, call, in, n, begin, end, first, size, p->input_zero_point, 1);
            const NeutronGroupSums stored = {(int32_t)sums.sum, (int32_t)sums.squares};
            memcpy(to, &stored, sizeof stored);
        }
    }
}
