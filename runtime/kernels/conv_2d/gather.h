/* SPDX-License-Identifier: BSD-3-Clause */
/* The inputs of convolutions' outputs laid side by side, as if they were the input channels of a pointwise convolution. */
#ifndef NEUTRON_GATHER_H
#define NEUTRON_GATHER_H

#include "convolution.h"

/* A convolution of few input channels, such as the first one of many networks: packed blocks of 8 inputs would mostly hold zeros. So
 * all taps of an output are gathered without gaps, and the weights likewise. */
enum {
    NEUTRON_GATHER_CHANNELS = 4,  /* at most */
    NEUTRON_GATHER_BYTES = 128,   /* of an output's inputs, at most */
    NEUTRON_GATHER_PIXELS = 32,   /* outputs at a time */
    NEUTRON_GATHER_WEIGHTS = 8192 /* bytes at a time */
};

/* Bytes from one output's inputs to the next: whole blocks of 8. tap_bytes: from tap to tap. */
static inline size_t neutron_gather_pitch(const NeutronConv2dS8 *p, size_t tap_bytes) {
    return ((size_t)p->kernel_h * (size_t)p->kernel_w * tap_bytes + 7) / 8 * 8;
}

static inline bool neutron_gather_fits(const NeutronConv2dS8 *p, const NeutronBuffer *input, const NeutronBuffer *output) {
    return p->group_inputs <= NEUTRON_GATHER_CHANNELS && input->channel_pitch == 1 &&
           p->group_outputs == output->channels &&
           (int64_t)p->kernel_h * p->kernel_w * p->group_inputs <= NEUTRON_GATHER_BYTES;
}

/* Output channels whose weights are gathered at a time, a multiple of 8. */
static inline int32_t neutron_gather_channels(const NeutronConv2dS8 *p) {
    const size_t bytes = neutron_gather_pitch(p, (size_t)p->group_inputs) * NEUTRON_LANES;
    return (int32_t)(NEUTRON_GATHER_WEIGHTS / bytes) * NEUTRON_LANES;
}

/* Packed weights [k/8][tap][8 k][8 inputs] of `groups` groups to [k/8][block][8 k][8 gathered inputs]. */
static inline void neutron_gather_weights(int8_t *to, const NeutronConv2dS8 *p, const int8_t *weights, size_t groups) {
    const size_t taps = (size_t)p->kernel_h * (size_t)p->kernel_w, inputs = (size_t)p->group_inputs;
    const size_t group_bytes = neutron_gather_pitch(p, inputs) * NEUTRON_LANES;
    memset(to, 0, groups * group_bytes);
    for (size_t g = 0; g < groups; g++, to += group_bytes) {
        for (size_t i = 0; i < taps * inputs; i++) {
            const int8_t *from = weights + (g * taps + i / inputs) * NEUTRON_LANES * NEUTRON_LANES + i % inputs;
            int8_t *block = to + i / 8 * NEUTRON_LANES * NEUTRON_LANES + i % 8;
            for (size_t k = 0; k < NEUTRON_LANES; k++) block[k * NEUTRON_LANES] = from[k * NEUTRON_LANES];
        }
    }
}

/* memcpy for few bytes, without a call. */
static NEUTRON_INLINE void neutron_copy_few(uint8_t *to, const uint8_t *from, size_t count) {
    if (count >= 16) {
        uint8_t chunk[16], *const last = to + count - 16;
        const uint8_t *const last_from = from + count - 16;
        for (; from < last_from; from += 16, to += 16) {
            memcpy(chunk, from, 16);
            memcpy(to, chunk, 16);
        }
        memcpy(chunk, last_from, 16);
        memcpy(last, chunk, 16);
    } else if (count >= 8) {
        uint64_t first, last;
        memcpy(&first, from, 8);
        memcpy(&last, from + count - 8, 8);
        memcpy(to, &first, 8);
        memcpy(to + count - 8, &last, 8);
    } else if (count >= 4) {
        uint32_t first, last;
        memcpy(&first, from, 4);
        memcpy(&last, from + count - 4, 4);
        memcpy(to, &first, 4);
        memcpy(to + count - 4, &last, 4);
    } else {
        for (size_t i = 0; i < count; i++) to[i] = from[i];
    }
}

/* The byte `value`, `count` times. */
static NEUTRON_INLINE void neutron_fill_few(uint8_t *to, int32_t value, size_t count) {
    uint8_t chunk[16];
    memset(chunk, value, sizeof chunk);
    for (; count >= 16; to += 16, count -= 16) memcpy(to, chunk, 16);
    for (; count >= 4; to += 4, count -= 4) memcpy(to, chunk, 4);
    for (; count > 0; to++, count--) *to = chunk[0];
}

/* Where an output's inputs go: those of a group from input channel `channel` on, `tap_bytes` from tap to tap, which are no fewer than
 * the group's inputs, and `pitch` from output to output. */
typedef struct {
    const NeutronKernelCall *call;
    int32_t channel;
    size_t tap_bytes, pitch;
} NeutronGather;

/* One output's inputs of a kernel row whose first tap is in column `first`; `line` is NULL where the row is outside the input. */
static inline void neutron_gather_taps(uint8_t *to, const NeutronGather *gather, const uint8_t *line, int32_t first) {
    const NeutronConv2dS8 *p = gather->call->params;
    const NeutronBuffer *input = &gather->call->buffers[p->input];
    const size_t inputs = (size_t)p->group_inputs;
    for (int32_t j = 0; j < p->kernel_w; j++, to += gather->tap_bytes) {
        const int32_t x = first + j * p->dilation_w;
        if (line != NULL && x >= 0 && x < input->cols) {
            neutron_copy_few(to, line + (ptrdiff_t)x * input->col_pitch, inputs);
        } else {
            neutron_fill_few(to, p->input_zero_point, inputs);
        }
    }
}

/* The same where a row's inputs are next to each other, or of one tap. */
static inline void neutron_gather_row(uint8_t *to, const NeutronGather *gather, const uint8_t *line, int32_t first) {
    const NeutronConv2dS8 *p = gather->call->params;
    const NeutronBuffer *input = &gather->call->buffers[p->input];
    const int32_t begin = neutron_bound(-first, 0, p->kernel_w);
    const int32_t end = line != NULL ? neutron_bound(input->cols - first, begin, p->kernel_w) : begin;
    const size_t inputs = (size_t)p->group_inputs, before = (size_t)begin * inputs, taken = (size_t)(end - begin) * inputs;
    neutron_fill_few(to, p->input_zero_point, before);
    if (taken > 0) neutron_copy_few(to + before, line + (ptrdiff_t)(first + begin) * input->col_pitch, taken);
    neutron_fill_few(to + before + taken, p->input_zero_point, (size_t)(p->kernel_w - end) * inputs);
}

/* The inputs of `count` outputs of row `row` from column `col` on. Bytes past a tap's and an output's inputs are left as they are. */
static inline void neutron_gather_pixels(uint8_t *to, const NeutronGather *gather, int32_t n, int32_t row, int32_t col,
                                         int32_t count) {
    const NeutronKernelCall *call = gather->call;
    const NeutronConv2dS8 *p = call->params;
    const NeutronBuffer *input = &call->buffers[p->input];
    const size_t tap_bytes = gather->tap_bytes, inputs = (size_t)p->group_inputs, row_inputs = (size_t)p->kernel_w * inputs;
    const bool dense =
        p->kernel_w == 1 || ((size_t)input->col_pitch == tap_bytes && inputs == tap_bytes && p->dilation_w == 1);
    const int32_t first = col * p->stride_w - p->pad_left;
    const ptrdiff_t step = (ptrdiff_t)p->stride_w * input->col_pitch;
    for (int32_t i = 0; i < p->kernel_h; i++, to += (size_t)p->kernel_w * tap_bytes) {
        const int32_t at = row * p->stride_h - p->pad_top + i * p->dilation_h;
        const bool is_inside = at >= 0 && at < input->rows;
        const uint8_t *line = is_inside ? neutron_row_address(call->bases, input, n, at) + gather->channel : NULL;
        uint8_t *pixel = to;
        int32_t x = first, c = 0;
        while (c < count) {
            if (!is_inside || !dense || x < 0 || x > input->cols - p->kernel_w) {
                if (dense) {
                    neutron_gather_row(pixel, gather, line, x);
                } else {
                    neutron_gather_taps(pixel, gather, line, x);
                }
                c++;
                x += p->stride_w;
                pixel += gather->pitch;
                continue;
            }
            const uint8_t *from = line + (ptrdiff_t)x * input->col_pitch;
            const int32_t inside = (input->cols - p->kernel_w - x) / p->stride_w + 1;
            const int32_t end = c + inside < count ? c + inside : count;
            for (; c < end; c++, x += p->stride_w, pixel += gather->pitch, from += step) {
                neutron_copy_few(pixel, from, row_inputs);
            }
        }
    }
}

#endif
