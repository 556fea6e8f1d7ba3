/* SPDX-License-Identifier: BSD-3-Clause */
/* A random call of one kernel: its tensors, its window, and numbers for its parameters. */
#ifndef RANDOM_CASE_H
#define RANDOM_CASE_H

#include "../runtime/random_buffers.h"

typedef struct {
    NeutronBuffer buffers[3]; /* input a, input b, output */
    NeutronWindowExtents window;
    uint32_t sizes[3], weights_size;
    bool is_depthwise;
    union {
        NeutronDepthwiseConv2dS8 depthwise;
        NeutronAddS8 add;
        NeutronMulS8 mul;
        NeutronMaximumS8 maximum;
        NeutronSquaredDifferenceS8 squared_difference;
        NeutronPreluS8 prelu;
        NeutronAveragePool2dS8 pool;
        NeutronMeanS8 mean;
        NeutronSumS8 sum;
        NeutronReduceMaxS8 reduce_max;
        NeutronPadS8 pad;
        NeutronCopyS8 copy;
        NeutronLookupS8 lookup;
        NeutronSoftmaxS8 softmax;
        NeutronBatchMatmulS8 batch_matmul;
    } params;
} Case;

/* An output of at most these extents, a window of it and where it lies. The order in which arguments are evaluated is the
 * compiler's choice, so no two of them may be drawn. */
static void make_output(Case *c, int32_t most_rows, int32_t most_cols, int32_t most_channels) {
    NeutronBuffer *out = &c->buffers[2];
    const int32_t rows = between(1, most_rows), cols = between(1, most_cols);
    int32_t channels = between(1, one_in(3) ? most_channels : 12);
    int32_t multiple = 1;
    if (c->is_depthwise) {
        channels *= c->params.depthwise.group_outputs;
        multiple = NEUTRON_LANES;
    }
    NeutronWindowExtents *w = &c->window;
    out->base = NEUTRON_BASE_OUTPUT;
    out->offset = (uint32_t)between(0, 7);
    out->batches = between(1, 2);
    out->rows = out->ring = rows;
    out->cols = cols;
    out->channels = channels;
    const bool whole = one_in(2);
    w->batch1 = out->batches;
    w->row0 = whole ? 0 : between(0, rows - 1);
    w->row1 = whole ? rows : between(w->row0 + 1, rows);
    w->col0 = whole ? 0 : between(0, cols - 1);
    w->col1 = whole ? cols : between(w->col0 + 1, cols);
    w->channel0 = whole ? 0 : between(0, (channels - 1) / multiple) * multiple;
    w->channel1 = whole ? channels : between(w->channel0 + 1, channels);
    hold(&out->col0, &out->cols_held, w->col0, w->col1, cols);
    hold(&out->channel0, &out->channels_held, w->channel0, w->channel1, channels);
    c->sizes[2] = lay_out(out, false);
}

/* An input with these extents, of which those columns and channels are read; batches as the output's. */
static void make_input(Case *c, int which, int32_t rows, int32_t cols, int32_t channels, const int32_t read[4]) {
    NeutronBuffer *in = &c->buffers[which];
    in->base = NEUTRON_BASE_INPUT | (uint32_t)which << 8;
    in->offset = (uint32_t)between(0, 7);
    in->batches = c->buffers[2].batches;
    in->rows = rows;
    in->cols = cols;
    in->channels = channels;
    in->ring = one_in(3) ? between(1, rows) : rows; /* wrong rows are as good as any here */
    hold(&in->col0, &in->cols_held, read[0], read[1], cols);
    hold(&in->channel0, &in->channels_held, read[2], read[3], channels);
    c->sizes[which] = lay_out(in, true);
}

/* An input that is read where the output is written; sometimes the output's very memory. */
static void make_same(Case *c, int which) {
    const NeutronWindowExtents *w = &c->window;
    NeutronBuffer *out = &c->buffers[2];
    make_input(c, which, out->rows, out->cols, out->channels, (int32_t[]){w->col0, w->col1, w->channel0, w->channel1});
    if (which == 0 && one_in(6)) {
        c->buffers[0] = *out;
        if (one_in(2)) {
            /* The output lies before the input. */
            const uint32_t after = (uint32_t)between(0, 9);
            c->buffers[0].offset += after;
            c->sizes[2] += after;
        }
    }
}

static void bound(int32_t *low, int32_t *high) {
    *low = one_in(2) ? -128 : between(-128, 127);
    *high = one_in(2) ? 127 : between(*low, 127);
}

static int32_t multiplier(void) { return (int32_t)(random_word() >> 2 | 1u << 30); }

#endif
