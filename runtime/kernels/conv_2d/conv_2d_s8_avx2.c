/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_s8 for AVX2: 3 pixels of a row by 8 output channels in registers, all taps at a stretch. */
#include "avx2.h"
#include "gather.h"

#if NEUTRON_X86_VARIANTS

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
    const size_t pitch = neutron_gather_pitch(p, (size_t)p->group_inputs), taps = (size_t)p->kernel_h * (size_t)p->kernel_w;
    NeutronPointwise256 layer = {.p = p, .inputs = (int32_t)pitch, .group_bytes = pitch * 8};
    layer.range = neutron_range_256(p);
    NeutronLine line = {.in_pitch = (ptrdiff_t)pitch, .out_pitch = output->col_pitch};
    NeutronRescale256 groups[NEUTRON_GROUPS_256];
    int8_t weights[NEUTRON_GATHER_WEIGHTS];
    const NeutronGather taps_of = {call, 0, (size_t)p->group_inputs, pitch};
    uint8_t pixels[NEUTRON_GATHER_PIXELS * NEUTRON_GATHER_BYTES] = {0};
    line.in = pixels;
    const int32_t held = neutron_gather_channels(p), most = 8 * NEUTRON_GROUPS_256;
    const int32_t step = held < most ? held : most;
    for (int32_t k = w->channel0; k < w->channel1; k += step) {
        const int32_t channels = w->channel1 - k < step ? w->channel1 - k : step;
        const size_t first_group = (size_t)(k - p->constant_channel0) / 8, count = neutron_blocks_of(channels);
        neutron_gather_weights(weights, p, neutron_packed_weights(call, p) + first_group * taps * 64, count);
        layer.table = neutron_requant_blocks(call, p) + first_group;
        layer.kind = neutron_prepare_groups_256(groups, count, p, layer.table);
        NEUTRON_FOR_EACH_ROW(w, n, r) {
            for (int32_t c = w->col0; c < w->col1; c += NEUTRON_GATHER_PIXELS) {
                const int32_t left = w->col1 - c;
                const int32_t size = left < NEUTRON_GATHER_PIXELS ? left : NEUTRON_GATHER_PIXELS;
                neutron_gather_pixels(pixels, &taps_of, n, r, c, size);
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
    if (neutron_gather_fits(p, input, output)) {
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
