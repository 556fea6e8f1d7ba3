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

/* memcpy for few bytes, most often 8 to 16. */
static inline void neutron_copy_few(uint8_t *to, const uint8_t *from, size_t count) {
    uint64_t first, last;
    if (count < 8) {
        for (size_t i = 0; i < count; i++) to[i] = from[i];
        return;
    }
    memcpy(&last, from + count - 8, 8);
    for (size_t i = 0; i + 8 < count; i += 8) {
        memcpy(&first, from + i, 8);
        memcpy(to + i, &first, 8);
    }
    memcpy(to + count - 8, &last, 8);
}

/* Where an output's inputs go: those of a group from input channel `channel` on, `tap_bytes` from tap to tap, which are no fewer than
 * the group's inputs, and `pitch` from output to output. */
typedef struct {
    const NeutronKernelCall *call;
    int32_t channel;
    size_t tap_bytes, pitch;
} NeutronGather;

/* The inputs of `count` outputs of row `row` from column `col` on. Bytes past a tap's and an output's inputs are left as they are. */
static inline void neutron_gather_pixels(uint8_t *to, const NeutronGather *gather, int32_t n, int32_t row, int32_t col,
                                         int32_t count) {
    const NeutronKernelCall *call = gather->call;
    const NeutronConv2dS8 *p = call->params;
    const NeutronBuffer *input = &call->buffers[p->input];
    const size_t inputs = (size_t)p->group_inputs, tap_bytes = gather->tap_bytes;
    const size_t row_bytes = (size_t)p->kernel_w * tap_bytes;
    const bool dense = (size_t)input->col_pitch == tap_bytes && inputs == tap_bytes && p->dilation_w == 1;
    for (int32_t i = 0; i < p->kernel_h; i++, to += row_bytes) {
        const int32_t at = row * p->stride_h - p->pad_top + i * p->dilation_h;
        const bool row_is_inside = at >= 0 && at < input->rows;
        const uint8_t *line = row_is_inside ? neutron_row_address(call->bases, input, n, at) + gather->channel : NULL;
        uint8_t *pixel = to;
        for (int32_t c = 0; c < count; c++, pixel += gather->pitch) {
            const int32_t first = (col + c) * p->stride_w - p->pad_left;
            if (row_is_inside && dense && first >= 0 && first <= input->cols - p->kernel_w) {
                neutron_copy_few(pixel, line + (ptrdiff_t)first * input->col_pitch, row_bytes);
                continue;
            }
            for (int32_t j = 0; j < p->kernel_w; j++) {
                const int32_t x = first + j * p->dilation_w;
                uint8_t *tap = pixel + (size_t)j * tap_bytes;
                if (row_is_inside && x >= 0 && x < input->cols) {
                    neutron_copy_few(tap, line + (ptrdiff_t)x * input->col_pitch, inputs);
                } else {
                    memset(tap, p->input_zero_point, inputs);
                }
            }
        }
    }
}

#endif
