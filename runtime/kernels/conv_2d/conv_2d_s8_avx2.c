/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_s8 for AVX2: 3 pixels of a row by 8 output channels in registers, all taps at a stretch. */
#include "avx2.h"

#if NEUTRON_X86_VARIANTS

/* ---- few input channels -------------------------------------------------------------------------------------------- */

/* A convolution of few input channels, such as the first one of many networks: packed blocks of 8 inputs would mostly hold zeros.
 * All taps of an output are laid side by side instead, as if they were the input channels of a pointwise convolution. */
enum {
    GATHER_CHANNELS = 4,  /* at most */
    GATHER_BYTES = 128,   /* of an output's inputs, at most */
    GATHER_PIXELS = 32,   /* outputs at a time */
    GATHER_WEIGHTS = 8192 /* bytes at a time */
};

/* Bytes from one output's inputs to the next: whole blocks of 8. */
static inline size_t gather_pitch(const NeutronConv2dS8 *p) {
    return ((size_t)p->kernel_h * (size_t)p->kernel_w * (size_t)p->group_inputs + 7) / 8 * 8;
}

static inline bool gather_fits(const NeutronConv2dS8 *p, const NeutronBuffer *input,
                                       const NeutronBuffer *output) {
    return p->group_inputs <= GATHER_CHANNELS && input->channel_pitch == 1 &&
           p->group_outputs == output->channels &&
           (int64_t)p->kernel_h * p->kernel_w * p->group_inputs <= GATHER_BYTES;
}

/* Output channels whose weights are gathered at a time, a multiple of 8. */
static inline int32_t gather_channels(const NeutronConv2dS8 *p) {
    return (int32_t)(GATHER_WEIGHTS / (gather_pitch(p) * NEUTRON_LANES)) * NEUTRON_LANES;
}

/* Packed weights [k/8][tap][8 k][8 inputs] of `groups` groups to [k/8][block][8 k][8 gathered inputs]. */
static inline void gather_weights(int8_t *to, const NeutronConv2dS8 *p, const int8_t *weights, size_t groups) {
    const size_t taps = (size_t)p->kernel_h * (size_t)p->kernel_w, inputs = (size_t)p->group_inputs;
    const size_t group_bytes = gather_pitch(p) * NEUTRON_LANES;
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
static inline void copy_few(uint8_t *to, const uint8_t *from, size_t count) {
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

/* The inputs of `count` outputs of row `row` from column `col` on; bytes past an output's inputs are left as they are. */
static inline void gather_pixels(uint8_t *to, const NeutronKernelCall *call, int32_t n, int32_t row, int32_t col,
                                         int32_t count) {
    const NeutronConv2dS8 *p = call->params;
    const NeutronBuffer *input = &call->buffers[p->input];
    const size_t pitch = gather_pitch(p), inputs = (size_t)p->group_inputs;
    const size_t row_bytes = (size_t)p->kernel_w * inputs;
    const bool dense = input->col_pitch == p->group_inputs && p->dilation_w == 1;
    for (int32_t i = 0; i < p->kernel_h; i++, to += row_bytes) {
        const int32_t at = row * p->stride_h - p->pad_top + i * p->dilation_h;
        const bool row_is_inside = at >= 0 && at < input->rows;
        const uint8_t *line = row_is_inside ? neutron_row_address(call->bases, input, n, at) : NULL;
        uint8_t *pixel = to;
        for (int32_t c = 0; c < count; c++, pixel += pitch) {
            const int32_t first = (col + c) * p->stride_w - p->pad_left;
            if (row_is_inside && dense && first >= 0 && first <= input->cols - p->kernel_w) {
                copy_few(pixel, line + (ptrdiff_t)first * input->col_pitch, row_bytes);
                continue;
            }
            for (int32_t j = 0; j < p->kernel_w; j++) {
                const int32_t x = first + j * p->dilation_w;
                uint8_t *tap = pixel + (size_t)j * inputs;
                if (row_is_inside && x >= 0 && x < input->cols) {
                    copy_few(tap, line + (ptrdiff_t)x * input->col_pitch, inputs);
                } else {
                    memset(tap, p->input_zero_point, inputs);
                }
            }
        }
    }
}

/* ---- blocks of pixels -------------------------------------------------------------------------------------------------- */

typedef struct {
    const NeutronKernelCall *call;
    const NeutronConv2dS8 *p;
    const NeutronBuffer *input;
    NeutronRange256 range;
    size_t group_bytes; /* packed weights of 8 output channels */
    NeutronRescaleKind256 kind;
} Layer;

/* The place in the input of the tap (0, 0) of a block of outputs, and the place where the block is written. */
typedef struct {
    int32_t n, row, col, channel;
    uint8_t *out;
    ptrdiff_t out_pitch;
    int32_t pixels, channels;
} Place;

NEUTRON_VECTOR_INLINE void compute_block(const Layer *layer, const Place *at, const int8_t *weights,
                                       const NeutronRescale256 *rescale, const int pixels) {
    const NeutronConv2dS8 *p = layer->p;
    const NeutronBuffer *input = layer->input;
    const size_t whole = (size_t)p->group_inputs / 8, rest = (size_t)p->group_inputs % 8;
    uint8_t padding[8];
    memset(padding, p->input_zero_point, sizeof padding);
    __m256i sums[NEUTRON_PIXELS_256][4];
    NEUTRON_UNROLL
    for (int k = 0; k < pixels; k++) {
        NEUTRON_UNROLL
        for (int i = 0; i < 4; i++) sums[k][i] = _mm256_setzero_si256();
    }
    for (int32_t i = 0; i < p->kernel_h; i++) {
        const int32_t row = at->row + i * p->dilation_h;
        const bool row_is_inside = row >= 0 && row < input->rows;
        const uint8_t *line =
            row_is_inside ? neutron_row_address(layer->call->bases, input, at->n, row) + at->channel : NULL;
        for (int32_t j = 0; j < p->kernel_w; j++) {
            /* A pixel outside the input is 8 bytes of its zero point, again and again. */
            const uint8_t *pixel[NEUTRON_PIXELS_256];
            size_t step[NEUTRON_PIXELS_256];
            __m128i x[NEUTRON_PIXELS_256];
            NEUTRON_UNROLL
            for (int k = 0; k < pixels; k++) {
                const int32_t col = at->col + k * p->stride_w + j * p->dilation_w;
                const bool inside = row_is_inside && col >= 0 && col < input->cols;
                pixel[k] = inside ? line + (ptrdiff_t)col * input->col_pitch : padding;
                step[k] = inside ? 8 : 0;
            }
            for (size_t b = 0; b < whole; b++, weights += 64) {
                NEUTRON_UNROLL
                for (int k = 0; k < pixels; k++) {
                    x[k] = neutron_bytes_128(pixel[k], 8);
                    pixel[k] += step[k];
                }
                neutron_multiply_block_256(sums, weights, x, pixels);
            }
            if (rest != 0) {
                NEUTRON_UNROLL
                for (int k = 0; k < pixels; k++) x[k] = neutron_bytes_128(pixel[k], rest);
                neutron_multiply_block_256(sums, weights, x, pixels);
                weights += 64;
            }
        }
    }
    neutron_store_block_256((const __m256i(*)[4])sums, rescale, &layer->range, layer->kind, at->out, at->out_pitch,
                            at->channels, pixels);
}

NEUTRON_VECTOR __attribute__((noinline)) static void compute_3(const Layer *layer, const Place *at,
                                                             const int8_t *weights, const NeutronRescale256 *rescale) {
    compute_block(layer, at, weights, rescale, NEUTRON_PIXELS_256);
}
NEUTRON_VECTOR __attribute__((noinline)) static void compute_1(const Layer *layer, const Place *at,
                                                             const int8_t *weights, const NeutronRescale256 *rescale) {
    compute_block(layer, at, weights, rescale, 1);
}

/* A layer of few input channels: stretches of a row gathered, then pointwise. */
NEUTRON_VECTOR static void run_gathered(const NeutronKernelCall *call) {
    const NeutronConv2dS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *output = &call->buffers[p->output];
    const size_t pitch = gather_pitch(p), taps = (size_t)p->kernel_h * (size_t)p->kernel_w;
    NeutronPointwise256 layer = {.p = p, .inputs = (int32_t)pitch, .group_bytes = pitch * 8};
    layer.range = neutron_range_256(p);
    NeutronLine line = {.in_pitch = (ptrdiff_t)pitch, .out_pitch = output->col_pitch};
    NeutronRescale256 groups[NEUTRON_GROUPS_256];
    int8_t weights[GATHER_WEIGHTS];
    uint8_t pixels[GATHER_PIXELS * GATHER_BYTES] = {0};
    line.in = pixels;
    const int32_t held = gather_channels(p), most = 8 * NEUTRON_GROUPS_256;
    const int32_t step = held < most ? held : most;
    for (int32_t k = w->channel0; k < w->channel1; k += step) {
        const int32_t channels = w->channel1 - k < step ? w->channel1 - k : step;
        const size_t first_group = (size_t)(k - p->constant_channel0) / 8, count = neutron_blocks_of(channels);
        gather_weights(weights, p, neutron_packed_weights(call, p) + first_group * taps * 64, count);
        layer.table = neutron_requant_blocks(call, p) + first_group;
        layer.kind = neutron_prepare_groups_256(groups, count, p, layer.table);
        NEUTRON_FOR_EACH_ROW(w, n, r) {
            for (int32_t c = w->col0; c < w->col1; c += GATHER_PIXELS) {
                const int32_t left = w->col1 - c;
                const int32_t size = left < GATHER_PIXELS ? left : GATHER_PIXELS;
                gather_pixels(pixels, call, n, r, c, size);
                line.out = neutron_element_address(call->bases, output, n, r, c, k);
                line.pixels = size;
                neutron_pointwise_tile_256(&layer, &line, weights, groups, channels);
            }
        }
    }
}

/* One row of the window for 8 output channels. */
NEUTRON_VECTOR static void run_row(const Layer *layer, Place *at, int32_t row, int32_t channel, const int8_t *weights,
                                 const NeutronRescale256 *rescale) {
    const NeutronConv2dS8 *p = layer->p;
    const NeutronWindowExtents *w = &layer->call->window;
    const NeutronBuffer *output = &layer->call->buffers[p->output];
    at->row = row * p->stride_h - p->pad_top;
    uint8_t *const out = neutron_element_address(layer->call->bases, output, at->n, row, 0, channel);
    for (int32_t c = w->col0; c < w->col1; c += at->pixels) {
        at->pixels = w->col1 - c >= NEUTRON_PIXELS_256 ? NEUTRON_PIXELS_256 : 1;
        at->col = c * p->stride_w - p->pad_left;
        at->out = out + (ptrdiff_t)c * output->col_pitch;
        (at->pixels == NEUTRON_PIXELS_256 ? compute_3 : compute_1)(layer, at, weights, rescale);
    }
}

NEUTRON_VECTOR bool conv_2d_s8_run_avx2(const NeutronKernelCall *call) {
    const NeutronConv2dS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *input = &call->buffers[p->input], *output = &call->buffers[p->output];
    if (input->channel_pitch != 1 || output->channel_pitch != 1 || p->single_rounding != 0) return false;
    if (gather_fits(p, input, output)) {
        run_gathered(call);
        return true;
    }
    /* 8 channels of a block with inputs of their own. */
    if (p->group_outputs % 8 != 0 && p->group_outputs != output->channels) return false;
    Layer layer = {.call = call, .p = p, .input = input, .range = neutron_range_256(p)};
    layer.group_bytes = (size_t)p->kernel_h * (size_t)p->kernel_w * neutron_blocks_of(p->group_inputs) * 64;
    for (int32_t k = w->channel0; k < w->channel1; k += 8) {
        const size_t group = (size_t)(k - p->constant_channel0) / 8;
        const int8_t *weights = neutron_packed_weights(call, p) + group * layer.group_bytes;
        NeutronRescale256 rescale;
        layer.kind = neutron_prepare_groups_256(&rescale, 1, p, neutron_requant_blocks(call, p) + group);
        Place at = {.out_pitch = output->col_pitch, .channels = w->channel1 - k};
        at.channel = k / p->group_outputs * p->group_inputs;
        for (at.n = w->batch0; at.n < w->batch1; at.n++) {
            for (int32_t r = w->row0; r < w->row1; r++) run_row(&layer, &at, r, k, weights, &rescale);
        }
    }
    return true;
}

#endif
