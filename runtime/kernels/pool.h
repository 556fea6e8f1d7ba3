/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a pool's windows lie in its input. */
#ifndef NEUTRON_POOL_H
#define NEUTRON_POOL_H

#include "elements.h"

/* The elements of an input axis that one output position takes; none where end <= first. */
typedef struct {
    int32_t first, end;
} NeutronTaps;

/* Largest kernel, stride and padding of one axis: sums of them and a position stay inside 32 bits. */
enum { NEUTRON_POOL_MAX = 1 << 15 };

/* For positions that neutron_pool_axis_is_sound has accepted. */
static inline NeutronTaps neutron_taps(int32_t position, int32_t kernel, int32_t stride, int32_t pad, int32_t extent) {
    const int32_t origin = position * stride - pad;
    const NeutronTaps taps = {origin > 0 ? origin : 0, origin >= extent - kernel ? extent : origin + kernel};
    return taps;
}

/* Output positions [first, end), of which there is one, can be computed; unless `empty` is allowed, all have a tap. */
static inline bool neutron_pool_axis_is_sound(int32_t first, int32_t end, int32_t kernel, int32_t stride, int32_t pad,
                                              int32_t extent, bool empty) {
    if (kernel < 1 || kernel > NEUTRON_POOL_MAX || stride < 1 || stride > NEUTRON_POOL_MAX) return false;
    if (pad < 0 || pad > NEUTRON_POOL_MAX) return false;
    const int64_t last = (int64_t)(end - 1) * stride;
    if (last > INT32_MAX - NEUTRON_POOL_MAX) return false;
    return empty || ((int64_t)first * stride - pad + kernel > 0 && last - pad < extent);
}

/* `empty`: a window that lies in the padding alone is allowed. */
static inline bool neutron_pool_is_sound(const NeutronProgramView *program, const NeutronAveragePool2dS8 *p,
                                         const NeutronWindowExtents *w, bool empty) {
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    if (in == NULL || neutron_window_buffer(program, p->output, true, w) == NULL || w->batch1 > in->batches) return false;
    if (!neutron_pool_axis_is_sound(w->row0, w->row1, p->kernel_h, p->stride_h, p->pad_top, in->rows, empty) ||
        !neutron_pool_axis_is_sound(w->col0, w->col1, p->kernel_w, p->stride_w, p->pad_left, in->cols, empty) ||
        !neutron_is_stored(p->clamp_min) || !neutron_is_stored(p->clamp_max)) {
        return false;
    }
    const int32_t first = neutron_taps(w->col0, p->kernel_w, p->stride_w, p->pad_left, in->cols).first;
    const int32_t end = neutron_taps(w->col1 - 1, p->kernel_w, p->stride_w, p->pad_left, in->cols).end;
    return neutron_buffer_holds(in, first, end, w->channel0, w->channel1);
}

#endif
