/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_s16 for the DSP extension: the inputs of 6 outputs, or of one, side by side as pairs; products are added up in 32 bits
 * as long as these hold the sum. This takes every call. */
#include "convolution_16.h"
#include "conv_2d/convolution_dsp.h"

#if NEUTRON_DSP

enum {
    BLOCK_BYTES = NEUTRON_LANES * NEUTRON_LANES,
    LANES_OF_A_PIXEL = 4,
    ALONE = 4, /* 6 pixels together take as long as 4 by themselves */
    WORDS = 216, /* of 4 inputs, all outputs together: 144 inputs of each of 6, as the sums have 64 bits on the stack */
    MOST_BLOCKS = 63, /* whose 504 products, of 22 bits and a sign each, fit 32 bits together */
};

typedef struct {
    const NeutronKernelCall *call;
    const NeutronConv2dS16 *p;
    uint8_t *input; /* element (0, 0, 0, 0) */
    uint32_t tap_blocks, blocks;
} Layer;

static inline int32_t min_of(int32_t a, int32_t b) { return a < b ? a : b; }

/* ---- inputs --------------------------------------------------------------------------------------------------------- */

/* Words of 4 inputs, of which the first `channels` are there and the others are 0: elements 0 and 2, then 1 and 3. */
static void fill_words(uint32_t *to, size_t pitch, const uint8_t *from, int32_t channel_pitch, int32_t channels,
                       uint32_t words) {
    for (; words > 0; words--, channels -= 4, from += 4 * channel_pitch, to += pitch) {
        uint32_t first, second;
        if (channel_pitch == 2 && channels >= 4) {
            first = neutron_load_word(from);
            second = neutron_load_word(from + 4);
        } else {
            uint16_t x[4] = {0};
            for (int32_t i = 0; i < 4 && i < channels; i++) x[i] = (uint16_t)neutron_load_16(from + i * channel_pitch);
            first = x[0] | (uint32_t)x[1] << 16;
            second = x[2] | (uint32_t)x[3] << 16;
        }
        to[0] = (first & 0xFFFF) | second << 16;
        to[1] = (second & 0xFFFF0000) | first >> 16;
    }
}

/* A pixel's part of the inputs: blocks of all taps, counted through. */
static void fill(const Layer *layer, const NeutronPixelDsp *pixel, const NeutronPartDsp *part, uint32_t *to, size_t pitch) {
    const NeutronConv2dS16 *p = layer->p;
    const NeutronBuffer *input = &layer->call->buffers[p->input];
    const uint32_t tap = part->first / layer->tap_blocks;
    uint32_t block = part->first % layer->tap_blocks, left = part->count;
    int32_t i = (int32_t)(tap / (uint32_t)p->kernel_w), j = (int32_t)(tap % (uint32_t)p->kernel_w);
    for (; left > 0; block = 0) {
        const int32_t row = pixel->row + i * p->dilation_h, col = pixel->col + j * p->dilation_w;
        const bool inside = row >= 0 && row < input->rows && col >= 0 && col < input->cols;
        const uint32_t count = left < layer->tap_blocks - block ? left : layer->tap_blocks - block;
        const int32_t channel = (int32_t)block * NEUTRON_LANES;
        const uint8_t *from = layer->input;
        if (inside) {
            from = neutron_place_dsp(layer->input, input, pixel->n, row, col) +
                   (part->channel0 + channel) * input->channel_pitch;
        }
        fill_words(to, pitch, from, inside ? input->channel_pitch : 0, inside ? p->group_inputs - channel : 0, 2 * count);
        to += 2 * count * pitch;
        left -= count;
        if (++j == p->kernel_w) {
            j = 0;
            i++;
        }
    }
}

static void fill_tile(const NeutronTileDsp *tile, const NeutronPartDsp *part, uint32_t *inputs) {
    for (int32_t i = 0; i < tile->size; i++) {
        /* Pixels past the last repeat it, and are not stored. */
        fill(tile->layer, &tile->pixels[min_of(i, tile->count - 1)], part, inputs + 2 * i, 2 * (size_t)tile->size);
    }
}

/* ---- sums of products ----------------------------------------------------------------------------------------------- */

/* Adds a part of the inputs to the sums of the output channels [channel, end), [channel][pixel]. */
static void add_part(const NeutronTileDsp *tile, const NeutronPartDsp *part, const uint32_t *inputs, uint64_t *wide, int32_t channel,
                     int32_t end) {
    const Layer *layer = tile->layer;
    const uint32_t *const inputs_end = inputs + 4 * part->count * (uint32_t)tile->size;
    const bool one = tile->size == 1;
    const int32_t step = one ? LANES_OF_A_PIXEL : 1;
    const int8_t *const weights = neutron_packed_weights(layer->call, layer->call->params) + part->first * BLOCK_BYTES;
    for (int32_t k = channel & -step; k < end; k += step) {
        uint32_t sums[NEUTRON_PIXELS_DSP];
        const int32_t held = k - layer->p->constant_channel0, lane = held % NEUTRON_LANES;
        const int8_t *const own = weights + (size_t)(held / NEUTRON_LANES) * layer->blocks * BLOCK_BYTES + lane * NEUTRON_LANES;
        memset(sums, 0, sizeof sums);
        if (one) {
            neutron_multiply_one_dsp(sums, inputs, inputs_end, own);
        } else {
            NeutronLanesDsp work = {
                .weights = own,
                .sums = sums,
                .count = 1,
                .inputs = inputs,
                .end = inputs_end,
                .kind = NEUTRON_CONTINUED_DSP | NEUTRON_PARTIAL_DSP,
            };
            neutron_lanes_dsp(&work);
        }
        /* Four lanes of one pixel, or all pixels of one lane. */
        const int32_t from = k < channel ? channel - k : 0, to = one ? min_of(step, end - k) : NEUTRON_PIXELS_DSP;
        uint64_t *const at = wide + (k - channel) * tile->size;
        for (int32_t i = from; i < to; i++) at[i] += (uint64_t)(int64_t)(int32_t)sums[i];
    }
}

/* Accumulators of the output channels [channel, end) to their stored values. */
static void store(const NeutronTileDsp *tile, const uint64_t *wide, int32_t channel, int32_t end) {
    const Layer *layer = tile->layer;
    const NeutronConv2dS16 *p = layer->p;
    const int32_t pitch = layer->call->buffers[p->output].channel_pitch;
    const NeutronRequantBlock16 *const tables = neutron_requant_blocks_16(layer->call, p);
    for (int32_t k = channel; k < end; k++, wide += tile->size) {
        const int32_t held = k - p->constant_channel0, lane = held % NEUTRON_LANES;
        const NeutronRequantBlock16 *const table = tables + held / NEUTRON_LANES;
        const uint64_t bias = neutron_bias_16(table, lane);
        for (int32_t i = 0; i < tile->count; i++) {
            neutron_store_16(tile->pixels[i].out + k * pitch, neutron_stored_16(p, table, lane, wide[i] + bias));
        }
    }
}

/* ---- tiles ---------------------------------------------------------------------------------------------------------- */

/* All output channels. Inputs that fit into the buffer whole are laid out once for a group. */
static void compute_tile(const NeutronTileDsp *tile) {
    const Layer *layer = tile->layer;
    const NeutronConv2dS16 *p = layer->p;
    const NeutronWindowExtents *w = &layer->call->window;
    const uint32_t fit = WORDS / (2 * (uint32_t)tile->size), most = fit < MOST_BLOCKS ? fit : MOST_BLOCKS;
    uint32_t inputs[2 * WORDS];
    uint64_t wide[NEUTRON_CHANNELS_DSP * NEUTRON_PIXELS_DSP];
    NeutronPartDsp part = {.channel0 = -1};
    for (int32_t channel = w->channel0, end; channel < w->channel1; channel = end) {
        const int32_t group = channel / p->group_outputs, channel0 = group * p->group_inputs;
        end = min_of((channel & -NEUTRON_LANES) + NEUTRON_CHANNELS_DSP, w->channel1);
        end = min_of(end, (group + 1) * p->group_outputs);
        memset(wide, 0, (size_t)(end - channel) * (size_t)tile->size * sizeof *wide);
        for (part.first = 0; part.first < layer->blocks; part.first += part.count) {
            if (layer->blocks > most || part.channel0 != channel0) {
                part.channel0 = channel0;
                part.count = layer->blocks - part.first < most ? layer->blocks - part.first : most;
                fill_tile(tile, &part, inputs);
            }
            add_part(tile, &part, inputs, wide, channel, end);
        }
        store(tile, wide, channel, end);
    }
}

void conv_2d_s16_run(const NeutronKernelCall *call) {
    const NeutronConv2dS16 *p = call->params;
    Layer layer = {.call = call, .p = p, .tap_blocks = (uint32_t)neutron_blocks_of(p->group_inputs)};
    layer.input = neutron_element_address(call->bases, &call->buffers[p->input], 0, 0, 0, 0);
    layer.blocks = (uint32_t)(p->kernel_h * p->kernel_w) * layer.tap_blocks;
    neutron_compute_tiles_dsp(call, &layer, ALONE, compute_tile);
}

#endif
