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
    return (NeutronTaps){origin > 0 ? origin : 0, origin >= extent - kernel ? extent : origin + kernel};
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
        !neutron_bounds_are_sound(p->clamp_min, p->clamp_max)) {
        return false;
    }
    const int32_t first = neutron_taps(w->col0, p->kernel_w, p->stride_w, p->pad_left, in->cols).first;
    const int32_t end = neutron_taps(w->col1 - 1, p->kernel_w, p->stride_w, p->pad_left, in->cols).end;
    return neutron_buffer_holds(in, first, end, w->channel0, w->channel1);
}

/* One output element: the input elements it takes, and where its channels go. */
typedef struct {
    const uint8_t *from; /* the first element it takes, in the window's first channel */
    uint8_t *to;
    int32_t rows, cols; /* taps; none where one of them is 0 */
    int32_t first_row;
    int32_t channels;
} NeutronPoolPoint;

/* What all elements of a call share. */
typedef struct {
    const NeutronBuffer *in, *out;
    int32_t clamp_min, clamp_max;
} NeutronPool;

typedef void (*NeutronPoolRun)(const NeutronPool *pool, const NeutronPoolPoint *point);

/* The way from one tap's row to the next, which may lead back to the start of a ring. */
static inline ptrdiff_t neutron_pool_next_row(const NeutronPool *pool, int32_t row) {
    const ptrdiff_t pitch = pool->in->row_pitch;
    return (row + 1) % pool->in->ring == 0 ? pitch - pitch * pool->in->ring : pitch;
}

/* run() for each output element of the window. */
static inline void neutron_for_each_point(const NeutronKernelCall *call, NeutronPoolRun run) {
    const NeutronAveragePool2dS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronPool pool = {&call->buffers[p->input], &call->buffers[p->output], p->clamp_min, p->clamp_max};
    NeutronPoolPoint point = {.channels = w->channel1 - w->channel0};
    for (int32_t n = w->batch0; n < w->batch1; n++) {
        for (int32_t r = w->row0; r < w->row1; r++) {
            const NeutronTaps rows = neutron_taps(r, p->kernel_h, p->stride_h, p->pad_top, pool.in->rows);
            point.first_row = rows.first;
            point.rows = rows.end > rows.first ? rows.end - rows.first : 0;
            /* Where there is no tap, no address is made. */
            const uint8_t *from = point.rows > 0 ? neutron_element_address(call->bases, pool.in, n, rows.first, 0, w->channel0) : NULL;
            point.to = neutron_element_address(call->bases, pool.out, n, r, w->col0, w->channel0);
            for (int32_t c = w->col0; c < w->col1; c++) {
                const NeutronTaps cols = neutron_taps(c, p->kernel_w, p->stride_w, p->pad_left, pool.in->cols);
                point.cols = cols.end > cols.first && point.rows > 0 ? cols.end - cols.first : 0;
                point.from = point.cols > 0 ? from + (ptrdiff_t)cols.first * pool.in->col_pitch : NULL;
                run(&pool, &point);
                point.to += pool.out->col_pitch;
            }
        }
    }
}

#endif
