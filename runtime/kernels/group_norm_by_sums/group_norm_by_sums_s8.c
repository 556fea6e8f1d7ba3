/* SPDX-License-Identifier: BSD-3-Clause */
/* The second pass of a group norm: any rows of the output, by sums that group_sums_s8 has written. */
#include <string.h>

#include "../group_sums/sums.h"

bool group_norm_by_sums_s8_check(const NeutronProgramView *program, const void *params_block,
                                 const NeutronWindowExtents *window) {
    const NeutronGroupNormBySumsS8 *p = params_block;
    const NeutronBuffer *in = neutron_window_elements(program, p->input, false, window, 1);
    const NeutronBuffer *out = neutron_window_elements(program, p->output, true, window, 1);
    const NeutronBuffer *sums = neutron_checked_buffer(program, p->sums, false);
    if (in == NULL || out == NULL || sums == NULL || p->group_channels < 1 || out->channels % p->group_channels != 0) {
        return false;
    }
    const NeutronWindowExtents read = {window->batch0, window->batch1, 0, sums->rows, 0, 1, 0, sums->channels};
    return p->count >= 1 && p->count <= MOST_NORMALIZED && neutron_holds_sums(sums, out->channels / p->group_channels) &&
           neutron_window_elements(program, p->sums, false, &read, 1) != NULL &&
           NEUTRON_NORMALIZATION_IS_SOUND(program, p, out->channels);
}

/* The groups of which a call keeps the scales. The output is written in ascending order, so that it may take the input's memory. */
enum { MOST_KNOWN = 32 };

/* The scale of a group by its sums over all blocks, bounded by those of `count` elements: the bytes may be anything. */
static NeutronNormScale scale_of(const NeutronKernelCall *call, const NeutronGroupNormBySumsS8 *p, int32_t n, int32_t group) {
    const NeutronBuffer *sums = &call->buffers[p->sums];
    NeutronNormSums all = {0, 0};
    for (int32_t block = 0; block < sums->rows; block++) {
        NeutronGroupSums stored;
        const int32_t channel = group * (int32_t)sizeof stored;
        memcpy(&stored, neutron_element_address(call->bases, sums, n, block, 0, channel), sizeof stored);
        all.sum += stored.sum;
        all.squares += stored.squares;
    }
    const int64_t most = INT64_C(255) * p->count, most_squares = 255 * most;
    all.sum = all.sum < -most ? -most : (all.sum > most ? most : all.sum);
    all.squares = all.squares < 0 ? 0 : (all.squares > most_squares ? most_squares : all.squares);
    return neutron_norm_scale(all, p->count, true, (uint64_t)p->epsilon_high << 32 | p->epsilon_low, 1);
}

void group_norm_by_sums_s8_run(const NeutronKernelCall *call) {
    const NeutronGroupNormBySumsS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const NeutronNormalization by = NEUTRON_NORMALIZATION(call, p, 1);
    const int32_t size = p->group_channels, begin = w->channel0 / size, end = (w->channel1 - 1) / size + 1;
    const bool known = end - begin <= MOST_KNOWN;
    NeutronNormScale scales[MOST_KNOWN];
    for (int32_t n = w->batch0; n < w->batch1; n++) {
        for (int32_t g = begin; g < end && known; g++) scales[g - begin] = scale_of(call, p, n, g);
        for (int32_t r = w->row0; r < w->row1; r++) {
            NEUTRON_FOR_EACH_COLUMN(call, in, out, n, r, at) {
                uint8_t *next = at.to;
                for (int32_t g = begin; g < end; g++) {
                    const NeutronNormScale scale = known ? scales[g - begin] : scale_of(call, p, n, g);
                    const int32_t first = g == begin ? w->channel0 : g * size;
                    const int32_t last = g == end - 1 ? w->channel1 : (g + 1) * size;
                    neutron_norm_line(next, out->channel_pitch, at.from + first * in->channel_pitch, in->channel_pitch, first,
                                      last - first, &by, &scale, 1);
                    next += (last - first) * out->channel_pitch;
                }
            }
        }
    }
}
