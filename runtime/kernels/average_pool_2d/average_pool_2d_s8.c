/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_integer_ops::AveragePool (integer_ops/pooling.h). */
#include "pool.h"

bool average_pool_2d_s8_check(const NeutronProgramView *program, const void *params_block,
                              const NeutronWindowExtents *window);
void average_pool_2d_s8_run(const NeutronKernelCall *call);

bool average_pool_2d_s8_check(const NeutronProgramView *program, const void *params_block,
                              const NeutronWindowExtents *window) {
    const NeutronAveragePool2dS8 *p = params_block;
    /* A sum of this many elements, and half their number, fit 32 bits. */
    return neutron_pool_is_sound(program, p, window, false) && (int64_t)p->kernel_h * p->kernel_w <= 1 << 23;
}

typedef struct {
    const NeutronKernelCall *call;
    const NeutronAveragePool2dS8 *params;
    const NeutronBuffer *in, *out;
    NeutronTaps rows, cols;
    int32_t batch;
    uint8_t *to; /* channel 0 of the window's output element */
} Point;

/* Channels of one output element from `done` on, by blocks of this size. */
static NEUTRON_INLINE int32_t average_blocks(const Point *point, int32_t done, int32_t channels, const int32_t size) {
    const NeutronBuffer *in = point->in, *out = point->out;
    const NeutronAveragePool2dS8 *p = point->params;
    const int32_t count = (point->rows.end - point->rows.first) * (point->cols.end - point->cols.first);
    for (; done <= channels - size; done += size) {
        int32_t sums[NEUTRON_BLOCK] = {0};
        int8_t block[NEUTRON_BLOCK];
        for (int32_t r = point->rows.first; r < point->rows.end; r++) {
            const uint8_t *from = neutron_element_address(point->call->bases, in, point->batch, r, point->cols.first,
                                                          point->call->window.channel0 + done);
            for (int32_t c = point->cols.first; c < point->cols.end; c++) {
                neutron_load_block(block, from, in->channel_pitch, size);
                for (int32_t i = 0; i < size; i++) sums[i] += block[i];
                from += in->col_pitch;
            }
        }
        for (int32_t i = 0; i < size; i++) {
            const int32_t nudged = sums[i] > 0 ? sums[i] + count / 2 : sums[i] - count / 2;
            block[i] = (int8_t)neutron_bound(nudged / count, p->clamp_min, p->clamp_max);
        }
        neutron_store_block(point->to + (ptrdiff_t)done * out->channel_pitch, out->channel_pitch, block, size);
    }
    return done;
}

static NEUTRON_INLINE void average_window(const NeutronKernelCall *call) {
    const NeutronAveragePool2dS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    Point point = {.call = call, .params = p, .in = &call->buffers[p->input], .out = &call->buffers[p->output]};
    const int32_t channels = w->channel1 - w->channel0;
    for (int32_t n = w->batch0; n < w->batch1; n++) {
        point.batch = n;
        for (int32_t r = w->row0; r < w->row1; r++) {
            point.rows = neutron_taps(r, p->kernel_h, p->stride_h, p->pad_top, point.in->rows);
            point.to = neutron_element_address(call->bases, point.out, n, r, w->col0, w->channel0);
            for (int32_t c = w->col0; c < w->col1; c++) {
                point.cols = neutron_taps(c, p->kernel_w, p->stride_w, p->pad_left, point.in->cols);
                int32_t done = 0;
                if (NEUTRON_BLOCK > 1) {
                    done = average_blocks(&point, done, channels, NEUTRON_BLOCK);
                    done = average_blocks(&point, done, channels, NEUTRON_SMALL_BLOCK);
                }
                average_blocks(&point, done, channels, 1);
                point.to += point.out->col_pitch;
            }
        }
    }
}

#ifdef NEUTRON_AVX2
NEUTRON_AVX2 static void average_window_avx2(const NeutronKernelCall *call) { average_window(call); }
#endif

void average_pool_2d_s8_run(const NeutronKernelCall *call) {
#ifdef NEUTRON_AVX2
    if (neutron_has_avx2()) {
        average_window_avx2(call);
        return;
    }
#endif
    average_window(call);
}
