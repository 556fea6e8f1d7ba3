/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_s8 for AVX-512 VNNI: up to 8 pixels of a row by 24 output channels in registers, all taps at a stretch. */
#include "avx512vnni.h"
#include "gather.h"

#if NEUTRON_X86_VARIANTS

typedef struct {
    const NeutronKernelCall *call;
    const NeutronConv2dS8 *p;
    const NeutronBuffer *input;
    NeutronRange512 range;
    size_t group_bytes; /* packed weights of 8 output channels */
    size_t tap_bytes;   /* of them, those of one tap */
    NeutronRescaleKind512 kind;
} Layer;

/* Where a block of outputs looks in the input, for the tap (0, 0). */
typedef struct {
    int32_t n, row, col, channel;
} Origin;

/* The pixels that one tap of a block looks at. Those outside the input are 8 bytes of its zero point, again and again. */
typedef struct {
    const uint8_t *pixel[8];
    size_t step[8]; /* bytes from 8 inputs to the next: 8, or 0 */
    bool inside;    /* all of them */
} Taps;

NEUTRON_AVX512VNNI_INLINE void find_taps(Taps *taps, const Layer *layer, const uint8_t *line, int32_t col,
                                         const uint8_t *padding, int32_t live, const int pixels) {
    const NeutronBuffer *input = layer->input;
    const int32_t stride = layer->p->stride_w;
    taps->inside = line != NULL && col >= 0 && col + (live - 1) * stride < input->cols;
    if (taps->inside) {
        const uint8_t *first = line + (ptrdiff_t)col * input->col_pitch;
        const ptrdiff_t pitch = (ptrdiff_t)stride * input->col_pitch;
        NEUTRON_UNROLL
        for (int p = 0; p < pixels; p++) taps->pixel[p] = first + (p < live ? p : live - 1) * pitch;
        return;
    }
    for (int p = 0; p < pixels; p++) {
        const int32_t at = col + (p < live ? p : live - 1) * stride;
        const bool inside = line != NULL && at >= 0 && at < input->cols;
        taps->pixel[p] = inside ? line + (ptrdiff_t)at * input->col_pitch : padding;
        taps->step[p] = inside ? 8 : 0;
    }
}

NEUTRON_AVX512VNNI_INLINE void multiply_block(const Layer *layer, const Origin *at, const int8_t *weights,
                                              const NeutronGroup512 *groups, const NeutronStore512 *to,
                                              const int pixels, const int count) {
    const NeutronConv2dS8 *p = layer->p;
    const NeutronBuffer *input = layer->input;
    const size_t inputs = (size_t)p->group_inputs;
    uint8_t padding[8];
    memset(padding, p->input_zero_point, sizeof padding);
    __m512i accumulators[8][3];
    NEUTRON_UNROLL
    for (int i = 0; i < pixels; i++) {
        NEUTRON_UNROLL
        for (int g = 0; g < count; g++) accumulators[i][g] = groups[g].start;
    }
    for (int32_t i = 0; i < p->kernel_h; i++) {
        const int32_t row = at->row + i * p->dilation_h;
        const uint8_t *line = NULL;
        if (row >= 0 && row < input->rows) {
            line = neutron_row_address(layer->call->bases, input, at->n, row) + at->channel;
        }
        for (int32_t j = 0; j < p->kernel_w; j++, weights += layer->tap_bytes) {
            Taps taps;
            find_taps(&taps, layer, line, at->col + j * p->dilation_w, padding, to->pixels, pixels);
            if (taps.inside) {
                neutron_multiply_pixels_512(accumulators, taps.pixel, NULL, inputs, weights, layer->group_bytes, pixels,
                                            count);
            } else {
                neutron_multiply_pixels_512(accumulators, taps.pixel, taps.step, inputs, weights, layer->group_bytes,
                                            pixels, count);
            }
        }
    }
    neutron_store_block_512(accumulators, groups, &layer->range, layer->kind, to, pixels, count);
}

#define DEFINE_BLOCK(PIXELS, COUNT)                                                                                    \
    NEUTRON_AVX512VNNI __attribute__((noinline)) static void block_##PIXELS##x##COUNT(                                 \
        const Layer *layer, const Origin *at, const int8_t *weights, const NeutronGroup512 *groups,                    \
        const NeutronStore512 *to) {                                                                                   \
        multiply_block(layer, at, weights, groups, to, PIXELS, COUNT);                                                 \
    }
#define DEFINE_BLOCKS(PIXELS) DEFINE_BLOCK(PIXELS, 1) DEFINE_BLOCK(PIXELS, 2) DEFINE_BLOCK(PIXELS, 3)
DEFINE_BLOCKS(8)
DEFINE_BLOCKS(4)
DEFINE_BLOCKS(1)

typedef void (*Block)(const Layer *layer, const Origin *at, const int8_t *weights, const NeutronGroup512 *groups,
                      const NeutronStore512 *to);
static const Block BLOCKS_OF_8[] = {block_8x1, block_8x2, block_8x3};
static const Block BLOCKS_OF_4[] = {block_4x1, block_4x2, block_4x3};
static const Block BLOCKS_OF_1[] = {block_1x1, block_1x2, block_1x3};

/* One row of the window, `channels` outputs from `channel` on, whose groups and weights are given. */
NEUTRON_AVX512VNNI static void run_row(const Layer *layer, int32_t n, int32_t row, int32_t channel, int32_t channels,
                                       const int8_t *weights, const NeutronGroup512 *groups) {
    const NeutronConv2dS8 *p = layer->p;
    const NeutronWindowExtents *w = &layer->call->window;
    const NeutronBuffer *output = &layer->call->buffers[p->output];
    uint8_t *const out = neutron_element_address(layer->call->bases, output, n, row, 0, channel);
    const int32_t group_count = (int32_t)neutron_blocks_of(channels);
    int32_t g = 0;
    while (g < group_count) {
        /* Groups taken together read the same inputs. */
        const int32_t conv_group = (channel + 8 * g) / p->group_outputs;
        const int32_t conv_group_end = ((conv_group + 1) * p->group_outputs - channel + 7) / 8;
        const int32_t end = conv_group_end < group_count ? conv_group_end : group_count;
        const size_t count = neutron_groups_at_once_512((size_t)(end - g));
        Origin at = {.n = n, .row = row * p->stride_h - p->pad_top, .channel = conv_group * p->group_inputs};
        NeutronStore512 to = {.pixel_pitch = output->col_pitch, .channels = channels - 8 * g};
        const int8_t *group_weights = weights + (size_t)g * layer->group_bytes;
        for (int32_t col = w->col0; col < w->col1;) {
            const int32_t left = w->col1 - col;
            const Block *const blocks = left > 4 ? BLOCKS_OF_8 : (left > 1 ? BLOCKS_OF_4 : BLOCKS_OF_1);
            const int32_t size = left > 4 ? 8 : (left > 1 ? 4 : 1);
            to.pixels = left < size ? left : size;
            to.out = out + (ptrdiff_t)col * output->col_pitch + 8 * g;
            at.col = col * p->stride_w - p->pad_left;
            blocks[count - 1](layer, &at, group_weights, groups + g, &to);
            col += to.pixels;
        }
        g += (int32_t)count;
    }
}

/* A layer of few input channels: stretches of a row gathered, then pointwise. */
NEUTRON_AVX512VNNI static bool run_gathered(const NeutronKernelCall *call) {
    const NeutronConv2dS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *output = &call->buffers[p->output];
    const size_t pitch = neutron_gather_pitch(p), taps = (size_t)p->kernel_h * (size_t)p->kernel_w;
    NeutronPointwise512 layer = {.inputs = (int32_t)pitch, .range = neutron_range_512(p), .group_bytes = pitch * 8};
    NeutronLine line = {.in_pitch = (ptrdiff_t)pitch, .out_pitch = output->col_pitch};
    NeutronGroup512 groups[NEUTRON_GROUPS_512];
    int8_t weights[NEUTRON_GATHER_WEIGHTS];
    uint8_t pixels[NEUTRON_GATHER_PIXELS * NEUTRON_GATHER_BYTES] = {0};
    line.in = pixels;
    const int32_t held = neutron_gather_channels(p), most = 8 * NEUTRON_GROUPS_512;
    const int32_t step = held < most ? held : most;
    for (int32_t k = w->channel0; k < w->channel1; k += step) {
        const int32_t channels = w->channel1 - k < step ? w->channel1 - k : step;
        const size_t first_group = (size_t)(k - p->constant_channel0) / 8, count = neutron_blocks_of(channels);
        neutron_gather_weights(weights, p, neutron_packed_weights(call, p) + first_group * taps * 64, count);
        layer.kind = neutron_prepare_groups_512(groups, count, p, neutron_requant_blocks(call, p) + first_group, weights,
                                                pitch / 8);
        if (layer.kind == NEUTRON_RESCALE_512_ANY && p->single_rounding != 0) return false;
        NEUTRON_FOR_EACH_ROW(w, n, r) {
            for (int32_t c = w->col0; c < w->col1; c += NEUTRON_GATHER_PIXELS) {
                const int32_t left = w->col1 - c;
                const int32_t size = left < NEUTRON_GATHER_PIXELS ? left : NEUTRON_GATHER_PIXELS;
                neutron_gather_pixels(pixels, call, n, r, c, size);
                line.out = neutron_element_address(call->bases, output, n, r, c, k);
                line.pixels = size;
                neutron_pointwise_tile_512(&layer, &line, weights, groups, channels);
            }
        }
    }
    return true;
}

NEUTRON_AVX512VNNI bool conv_2d_s8_run_avx512vnni(const NeutronKernelCall *call) {
    const NeutronConv2dS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *input = &call->buffers[p->input], *output = &call->buffers[p->output];
    if (input->channel_pitch != 1 || output->channel_pitch != 1) return false;
    if (neutron_gather_fits(p, input, output)) return run_gathered(call);
    /* 8 channels of a block with inputs of their own. */
    if (p->group_outputs % 8 != 0 && p->group_outputs != output->channels) return false;
    Layer layer = {.call = call, .p = p, .input = input, .range = neutron_range_512(p)};
    const size_t blocks = (size_t)p->kernel_h * (size_t)p->kernel_w * neutron_blocks_of(p->group_inputs);
    layer.group_bytes = blocks * 64;
    layer.tap_bytes = neutron_blocks_of(p->group_inputs) * 64;
    NeutronGroup512 groups[NEUTRON_GROUPS_512];
    for (int32_t k = w->channel0; k < w->channel1; k += 8 * NEUTRON_GROUPS_512) {
        const int32_t left = w->channel1 - k;
        const int32_t channels = left < 8 * NEUTRON_GROUPS_512 ? left : 8 * NEUTRON_GROUPS_512;
        const size_t first_group = (size_t)(k - p->constant_channel0) / 8;
        const int8_t *weights = neutron_packed_weights(call, p) + first_group * layer.group_bytes;
        layer.kind = neutron_prepare_groups_512(groups, neutron_blocks_of(channels), p,
                                                neutron_requant_blocks(call, p) + first_group, weights, blocks);
        /* One rounding, and a scale that is out of the ordinary. */
        if (layer.kind == NEUTRON_RESCALE_512_ANY && p->single_rounding != 0) return false;
        NEUTRON_FOR_EACH_ROW(w, n, r) run_row(&layer, n, r, k, channels, weights, groups);
    }
    return true;
}

#endif
