/* SPDX-License-Identifier: BSD-3-Clause */
/* Group norm of images, for both types of activations. */
#ifndef NEUTRON_GROUP_NORM_IMAGE_H
#define NEUTRON_GROUP_NORM_IMAGE_H

#include "normalization.h"

static NEUTRON_INLINE bool group_norm_check(const NeutronProgramView *program, const NeutronGroupNormS8 *p,
                                            const NeutronWindowExtents *window, const int32_t element_bytes) {
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    const NeutronBuffer *out = neutron_window_elements(program, p->output, true, window, (uint32_t)element_bytes);
    if (in == NULL || out == NULL || p->group_channels < 1 || out->channels % p->group_channels != 0) return false;
    if (in->rows != out->rows || in->cols != out->cols || in->channels != out->channels) return false;
    const int64_t places = (int64_t)in->rows * in->cols;
    /* The groups of the window's channels. */
    const int32_t size = p->group_channels, first = window->channel0 - window->channel0 % size;
    const int32_t over = window->channel1 % size, end = over == 0 ? window->channel1 : window->channel1 - over + size;
    const NeutronWindowExtents read = {window->batch0, window->batch1, 0, in->rows, 0, in->cols, first, end};
    return places <= MOST_NORMALIZED && places * size <= MOST_NORMALIZED &&
           neutron_window_elements(program, p->input, false, &read, (uint32_t)element_bytes) != NULL &&
           NEUTRON_NORMALIZATION_IS_SOUND(program, p, out->channels);
}

static NEUTRON_INLINE void group_norm_run(const NeutronKernelCall *call, const NeutronGroupNormS8 *p,
                                          const int32_t element_bytes) {
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const NeutronNormalization by = NEUTRON_NORMALIZATION(call, p, element_bytes);
    const int32_t size = p->group_channels;
    for (int32_t n = w->batch0; n < w->batch1; n++) {
        for (int32_t first = w->channel0 - w->channel0 % size; first < w->channel1; first += size) {
            NeutronNormSums sums = {0, 0};
            neutron_norm_add_rows(&sums, call, in, n, 0, in->rows, first, size, by.zero_point, element_bytes);
            const int32_t count = in->rows * in->cols * size;
            const NeutronNormScale scale = neutron_norm_scale(sums, count, true, by.epsilon, element_bytes);
            const int32_t begin = first > w->channel0 ? first : w->channel0;
            const int32_t end = first + size < w->channel1 ? first + size : w->channel1;
            for (int32_t r = w->row0; r < w->row1; r++) {
                const uint8_t *from = neutron_element_address(call->bases, in, n, r, w->col0, begin);
                uint8_t *to = neutron_element_address(call->bases, out, n, r, w->col0, begin);
                for (int32_t c = w->col0; c < w->col1; c++, from += in->col_pitch, to += out->col_pitch) {
                    neutron_norm_line(to, out->channel_pitch, from, in->channel_pitch, begin, end - begin, &by, &scale,
                                      element_bytes);
                }
            }
        }
    }
}

#endif
