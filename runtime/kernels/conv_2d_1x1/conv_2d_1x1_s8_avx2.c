/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_1x1_s8 for AVX2: 3 pixels by 8 output channels in registers, all input channels at a stretch. */
#include "conv_2d/avx2.h"

#if NEUTRON_X86_VARIANTS

NEUTRON_VECTOR_INLINE void compute_block(const NeutronPointwise256 *layer, const uint8_t *in, ptrdiff_t in_pitch,
                                       const int8_t *weights, const NeutronRescale256 *rescale,
                                       const NeutronRequantBlock *table, uint8_t *out, ptrdiff_t out_pitch,
                                       int32_t channels, const int pixels) {
    __m256i sums[NEUTRON_PIXELS_256][4];
    __m128i x[NEUTRON_PIXELS_256];
    NEUTRON_UNROLL
    for (int p = 0; p < pixels; p++) {
        NEUTRON_UNROLL
        for (int i = 0; i < 4; i++) sums[p][i] = _mm256_setzero_si256();
    }
    const size_t inputs = (size_t)layer->inputs, rest = inputs % 8;
    for (size_t i = 0; i < inputs - rest; i += 8, weights += 64) {
        NEUTRON_UNROLL
        for (int p = 0; p < pixels; p++) x[p] = neutron_bytes_128(in + p * in_pitch + i, 8);
        neutron_multiply_block_256(sums, weights, x, pixels);
    }
    if (rest != 0) {
        NEUTRON_UNROLL
        for (int p = 0; p < pixels; p++) x[p] = neutron_bytes_128(in + p * in_pitch + inputs - rest, rest);
        neutron_multiply_block_256(sums, weights, x, pixels);
    }
    if (layer->kind == NEUTRON_RESCALE_256_ONCE) {
        for (int p = 0; p < pixels; p++) {
            neutron_store_once_256(sums[p], rescale, layer->p, table, out + p * out_pitch, channels);
        }
        return;
    }
    neutron_store_block_256((const __m256i(*)[4])sums, rescale, &layer->range, layer->kind, out, out_pitch, channels,
                            pixels);
}

NEUTRON_VECTOR void neutron_pointwise_tile_256(const NeutronPointwise256 *layer, const NeutronLine *line,
                                             const int8_t *weights, const NeutronRescale256 *groups, int32_t channels) {
    const NeutronRequantBlock *table = layer->table;
    for (int32_t k = 0; k < channels; k += 8, groups++, table++, weights += layer->group_bytes) {
        const uint8_t *in = line->in;
        uint8_t *out = line->out + k;
        int64_t left = line->pixels;
        for (; left >= NEUTRON_PIXELS_256; left -= NEUTRON_PIXELS_256) {
            compute_block(layer, in, line->in_pitch, weights, groups, table, out, line->out_pitch, channels - k,
                          NEUTRON_PIXELS_256);
            in += NEUTRON_PIXELS_256 * line->in_pitch;
            out += NEUTRON_PIXELS_256 * line->out_pitch;
        }
        for (; left > 0; left--, in += line->in_pitch, out += line->out_pitch) {
            compute_block(layer, in, line->in_pitch, weights, groups, table, out, line->out_pitch, channels - k, 1);
        }
    }
}

NEUTRON_VECTOR static void run_line(const NeutronPointwise256 *layer, const NeutronLine *line, const int8_t *weights,
                                  const NeutronRescale256 *groups, int32_t channels) {
    const int64_t step = neutron_tile_pixels(layer->inputs);
    for (int64_t first = 0; first < line->pixels; first += step) {
        NeutronLine tile = *line;
        tile.in += first * line->in_pitch;
        tile.out += first * line->out_pitch;
        tile.pixels = line->pixels - first < step ? line->pixels - first : step;
        neutron_pointwise_tile_256(layer, &tile, weights, groups, channels);
    }
}

NEUTRON_VECTOR bool conv_2d_1x1_s8_run_avx2(const NeutronKernelCall *call) {
    const NeutronConv2d1x1S8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *input = &call->buffers[p->input], *output = &call->buffers[p->output];
    if (input->channel_pitch != 1 || output->channel_pitch != 1) return false;
    NeutronPointwise256 layer = {.p = p, .inputs = p->group_inputs, .range = neutron_range_256(p)};
    layer.group_bytes = neutron_blocks_of(p->group_inputs) * 64;
    NeutronRescale256 groups[NEUTRON_GROUPS_256];
    const bool joined = neutron_pixels_join(call);
    for (int32_t k = w->channel0; k < w->channel1; k += 8 * NEUTRON_GROUPS_256) {
        const int32_t left = w->channel1 - k;
        const int32_t channels = left < 8 * NEUTRON_GROUPS_256 ? left : 8 * NEUTRON_GROUPS_256;
        const size_t first_group = (size_t)(k - p->constant_channel0) / 8;
        const int8_t *weights = neutron_packed_weights(call, p) + first_group * layer.group_bytes;
        layer.table = neutron_requant_blocks(call, p) + first_group;
        layer.kind = neutron_prepare_groups_256(groups, neutron_blocks_of(channels), p, layer.table);
        NEUTRON_FOR_EACH_ROW(w, n, r) {
            const NeutronLine line = neutron_line_of_row(call, n, r, k, joined);
            run_line(&layer, &line, weights, groups, channels);
            if (joined) break;
        }
    }
    return true;
}

#endif
