/* SPDX-License-Identifier: BSD-3-Clause */
/* depthwise_conv_2d_s16 for the DSP extension: four channels side by side, whose sums fit 32 bits. Other calls take the portable
 * way. */
#include "convolution_16.h"

#if NEUTRON_DSP

enum {
    MOST_TAPS = 511, /* whose products, of 22 bits and a sign each, fit 32 bits together */
    MOST_ROWS = 16,
    CHANNELS = 4,
};

/* A row of the kernel that is inside the input. */
typedef struct {
    const uint8_t *line; /* the window's first channel of column 0 */
    int32_t tap;         /* the row's first, counted in blocks of 8 weights */
} Row;

/* The taps of an output element that are inside the input. */
typedef struct {
    Row rows[MOST_ROWS];
    int32_t row_count, first, count; /* columns of the kernel from `first` on */
    int32_t offset, pitch;           /* bytes to the first column's element, and from tap to tap */
} Taps;

/* The products of four channels, `channel` bytes behind the window's first. */
static __attribute__((noinline)) void multiply(int32_t *sums, const Taps *taps, int32_t channel, const int8_t *weights) {
    int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    for (int32_t i = 0; i < taps->row_count; i++) {
        const uint8_t *from = taps->rows[i].line + taps->offset + channel;
        const int8_t *own = weights + (ptrdiff_t)(taps->rows[i].tap + taps->first) * NEUTRON_LANES;
        for (int32_t j = taps->count; j > 0; j--, from += taps->pitch, own += NEUTRON_LANES) {
            const int32_t x01 = (int32_t)neutron_load_word(from), x23 = (int32_t)neutron_load_word(from + 4);
            const uint32_t word = neutron_load_aligned_word(own);
            const int32_t even = (int32_t)neutron_even_bytes(word), odd = (int32_t)neutron_odd_bytes(word);
            s0 = __smlabb(x01, even, s0);
            s1 = __smlatb(x01, odd, s1);
            s2 = __smlabt(x23, even, s2);
            s3 = __smlatt(x23, odd, s3);
        }
    }
    sums[0] = s0;
    sums[1] = s1;
    sums[2] = s2;
    sums[3] = s3;
}

/* The products of `count` channels, fewer than four. */
static __attribute__((noinline)) void multiply_some(int32_t *sums, const Taps *taps, int32_t channel, const int8_t *weights, int32_t count) {
    for (int32_t k = 0; k < count; k++) {
        sums[k] = 0;
        for (int32_t i = 0; i < taps->row_count; i++) {
            const uint8_t *from = taps->rows[i].line + taps->offset + channel + 2 * k;
            const int8_t *own = weights + (ptrdiff_t)(taps->rows[i].tap + taps->first) * NEUTRON_LANES + k;
            for (int32_t j = taps->count; j > 0; j--, from += taps->pitch, own += NEUTRON_LANES) {
                sums[k] += *own * neutron_load_16(from);
            }
        }
    }
}

/* All channels of an output element. */
static __attribute__((noinline)) void compute(const NeutronKernelCall *call, const Taps *taps, uint8_t *out) {
    const NeutronDepthwiseConv2dS16 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const int32_t pitch = call->buffers[p->output].channel_pitch;
    const size_t block_bytes = (size_t)p->kernel_h * (size_t)p->kernel_w * NEUTRON_LANES;
    const int32_t first_block = (w->channel0 - p->constant_channel0) / NEUTRON_LANES;
    const int8_t *weights = neutron_packed_weights(call, call->params) + (size_t)first_block * block_bytes;
    const NeutronRequantBlock16 *table = neutron_requant_blocks_16(call, p) + first_block;
    for (int32_t done = 0; done < w->channel1 - w->channel0; done += CHANNELS) {
        const int32_t left = w->channel1 - w->channel0 - done, count = left < CHANNELS ? left : CHANNELS;
        const int32_t lane = done % NEUTRON_LANES;
        int32_t sums[CHANNELS];
        if (count == CHANNELS) {
            multiply(sums, taps, 2 * done, weights + lane);
        } else {
            multiply_some(sums, taps, 2 * done, weights + lane, count);
        }
        for (int32_t k = 0; k < count; k++, out += pitch) {
            const uint64_t sum = neutron_bias_16(table, lane + k) + (uint64_t)(int64_t)sums[k];
            neutron_store_16(out, neutron_stored_16(p, table, lane + k, sum));
        }
        if (lane != 0) {
            weights += block_bytes;
            table++;
        }
    }
}

/* The first tap at or behind `from`, where taps are `dilation` apart. */
static int32_t first_tap(int32_t position, int32_t dilation, int32_t from) {
    return position >= from ? 0 : (from - position + dilation - 1) / dilation;
}

void depthwise_conv_2d_s16_run(const NeutronKernelCall *call) {
    const NeutronDepthwiseConv2dS16 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *input = &call->buffers[p->input], *output = &call->buffers[p->output];
    if (p->group_outputs != 1 || input->channel_pitch != 2 || p->kernel_h > MOST_ROWS ||
        p->kernel_w > MOST_TAPS / p->kernel_h) {
        depthwise_conv_2d_s16_run_portable(call);
        return;
    }
    Taps taps = {.pitch = p->dilation_w * input->col_pitch};
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        taps.row_count = 0;
        for (int32_t i = 0; i < p->kernel_h; i++) {
            const int32_t row = r * p->stride_h - p->pad_top + i * p->dilation_h;
            if (row < 0 || row >= input->rows) continue;
            const uint8_t *line = neutron_element_address(call->bases, input, n, row, 0, w->channel0);
            taps.rows[taps.row_count++] = (Row){line, i * p->kernel_w};
        }
        uint8_t *out = neutron_element_address(call->bases, output, n, r, w->col0, w->channel0);
        for (int32_t c = w->col0; c < w->col1; c++, out += output->col_pitch) {
            const int32_t col = c * p->stride_w - p->pad_left;
            taps.first = first_tap(col, p->dilation_w, 0);
            const int32_t end = first_tap(col, p->dilation_w, input->cols);
            taps.count = (end < p->kernel_w ? end : p->kernel_w) - taps.first;
            taps.offset = taps.count > 0 ? (col + taps.first * p->dilation_w) * input->col_pitch : 0;
            compute(call, &taps, out);
        }
    }
}

#endif
