/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_1x1_s8 for AVX-512 VNNI: up to 8 pixels by 24 output channels in registers, all input channels at a stretch. */
#include "conv_2d/avx512vnni.h"

#if NEUTRON_X86_VARIANTS

NEUTRON_AVX512VNNI_INLINE void multiply_block(const NeutronPointwise512 *layer, const uint8_t *in, ptrdiff_t in_pitch,
                                              const int8_t *weights, const NeutronGroup512 *groups,
                                              const NeutronStore512 *to, const int pixels, const int count) {
    __m512i accumulators[8][3];
    const uint8_t *pixel[8];
    NEUTRON_UNROLL
    for (int p = 0; p < pixels; p++) {
        /* Pixels past the last repeat it, and are not stored. */
        pixel[p] = in + (p < to->pixels ? p : to->pixels - 1) * in_pitch;
        NEUTRON_UNROLL
        for (int g = 0; g < count; g++) accumulators[p][g] = groups[g].start;
    }
    neutron_multiply_pixels_512(accumulators, pixel, NULL, (size_t)layer->inputs, weights, layer->group_bytes, pixels,
                                count);
    neutron_store_block_512(accumulators, groups, &layer->range, layer->kind, to, pixels, count);
}

#define DEFINE_BLOCK(PIXELS, COUNT)                                                                                    \
    NEUTRON_AVX512VNNI __attribute__((noinline)) static void block_##PIXELS##x##COUNT(                                 \
        const NeutronPointwise512 *layer, const uint8_t *in, ptrdiff_t in_pitch, const int8_t *weights,                \
        const NeutronGroup512 *groups, const NeutronStore512 *to) {                                                    \
        multiply_block(layer, in, in_pitch, weights, groups, to, PIXELS, COUNT);                                       \
    }
#define DEFINE_BLOCKS(PIXELS) DEFINE_BLOCK(PIXELS, 1) DEFINE_BLOCK(PIXELS, 2) DEFINE_BLOCK(PIXELS, 3)
DEFINE_BLOCKS(8)
DEFINE_BLOCKS(4)
DEFINE_BLOCKS(1)

typedef void (*Block)(const NeutronPointwise512 *layer, const uint8_t *in, ptrdiff_t in_pitch, const int8_t *weights,
                      const NeutronGroup512 *groups, const NeutronStore512 *to);
static const Block BLOCKS_OF_8[] = {block_8x1, block_8x2, block_8x3};
static const Block BLOCKS_OF_4[] = {block_4x1, block_4x2, block_4x3};
static const Block BLOCKS_OF_1[] = {block_1x1, block_1x2, block_1x3};

NEUTRON_AVX512VNNI void neutron_pointwise_tile_512(const NeutronPointwise512 *layer, const NeutronLine *line,
                                                   const int8_t *weights, const NeutronGroup512 *groups,
                                                   int32_t channels) {
    const size_t group_count = neutron_blocks_of(channels);
    size_t g = 0;
    while (g < group_count) {
        const size_t count = neutron_groups_at_once_512(group_count - g);
        NeutronStore512 to = {.pixel_pitch = line->out_pitch, .channels = channels - 8 * (int32_t)g};
        const int8_t *group_weights = weights + g * layer->group_bytes;
        for (int64_t first = 0; first < line->pixels;) {
            const int64_t left = line->pixels - first;
            const Block *const blocks = left > 4 ? BLOCKS_OF_8 : (left > 1 ? BLOCKS_OF_4 : BLOCKS_OF_1);
            const int32_t size = left > 4 ? 8 : (left > 1 ? 4 : 1);
            to.pixels = left < size ? (int32_t)left : size;
            to.out = line->out + first * line->out_pitch + 8 * g;
            blocks[count - 1](layer, line->in + first * line->in_pitch, line->in_pitch, group_weights, groups + g, &to);
            first += to.pixels;
        }
        g += count;
    }
}

NEUTRON_AVX512VNNI static void run_line(const NeutronPointwise512 *layer, const NeutronLine *line,
                                        const int8_t *weights, const NeutronGroup512 *groups, int32_t channels) {
    const int64_t step = neutron_tile_pixels(layer->inputs);
    for (int64_t first = 0; first < line->pixels; first += step) {
        NeutronLine tile = *line;
        tile.in += first * line->in_pitch;
        tile.out += first * line->out_pitch;
        tile.pixels = line->pixels - first < step ? line->pixels - first : step;
        neutron_pointwise_tile_512(layer, &tile, weights, groups, channels);
    }
}

NEUTRON_AVX512VNNI bool conv_2d_1x1_s8_run_avx512vnni(const NeutronKernelCall *call) {
    const NeutronConv2d1x1S8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *input = &call->buffers[p->input], *output = &call->buffers[p->output];
    if (input->channel_pitch != 1 || output->channel_pitch != 1) return false;
    NeutronPointwise512 layer = {.inputs = p->group_inputs, .range = neutron_range_512(p)};
    const size_t blocks = neutron_blocks_of(p->group_inputs);
    layer.group_bytes = blocks * 64;
    NeutronGroup512 groups[NEUTRON_GROUPS_512];
    const bool joined = neutron_pixels_join(call);
    for (int32_t k = w->channel0; k < w->channel1; k += 8 * NEUTRON_GROUPS_512) {
        const int32_t left = w->channel1 - k;
        const int32_t channels = left < 8 * NEUTRON_GROUPS_512 ? left : 8 * NEUTRON_GROUPS_512;
        const size_t first_group = (size_t)(k - p->constant_channel0) / 8;
        const int8_t *weights = neutron_packed_weights(call, p) + first_group * layer.group_bytes;
        layer.kind = neutron_prepare_groups_512(groups, neutron_blocks_of(channels), p,
                                                neutron_requant_blocks(call, p) + first_group, weights, blocks);
        /* One rounding, and a scale that is out of the ordinary. */
        if (layer.kind == NEUTRON_RESCALE_512_ANY && p->single_rounding != 0) return false;
        NEUTRON_FOR_EACH_ROW(w, n, r) {
            const NeutronLine line = neutron_line_of_row(call, n, r, k, joined);
            run_line(&layer, &line, weights, groups, channels);
            if (joined) break;
        }
    }
    return true;
}

#endif
