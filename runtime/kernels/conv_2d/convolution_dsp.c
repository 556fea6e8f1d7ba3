/* SPDX-License-Identifier: BSD-3-Clause */
/* Tiles of outputs for the DSP extension: 6 pixels by one output channel in registers, or one pixel by four channels. */
#include "convolution_dsp.h"

#if NEUTRON_DSP

enum { BLOCK_BYTES = NEUTRON_LANES * NEUTRON_LANES };

static NEUTRON_INLINE void widen_word(uint32_t *to, uint32_t word) {
    to[0] = neutron_even_bytes(word);
    to[1] = neutron_odd_bytes(word);
}

void neutron_widen_dsp(uint32_t *to, size_t pitch, const uint8_t *from, int32_t channel_pitch, int32_t channels,
                       uint32_t words) {
    uint32_t *const end = to + words * pitch;
    if (channel_pitch == 1) {
        for (; channels >= 4 && to != end; channels -= 4, from += 4, to += pitch) {
            widen_word(to, neutron_load_word(from));
        }
    }
    for (; to != end; channels -= 4, to += pitch) {
        uint32_t word = 0;
        for (int32_t i = 0; i < 4 && i < channels; i++, from += channel_pitch) word |= (uint32_t)*from << 8 * i;
        widen_word(to, word);
    }
}

static inline int32_t min_of(int32_t a, int32_t b) { return a < b ? a : b; }

/* ---- sums of products ----------------------------------------------------------------------------------------------- */

/* Adds the products of 4 inputs, widened, with 4 weights. */
static NEUTRON_INLINE uint32_t multiply_word(uint32_t sum, const uint32_t *inputs, uint32_t even, uint32_t odd) {
    return neutron_add_products(sum, even, odd, inputs[0], inputs[1]);
}

static NEUTRON_INLINE void multiply_pixels(uint32_t *sums, const int32_t *start, const uint32_t *inputs,
                                           const int8_t *weights, uint32_t count, int32_t lane0, int32_t lane1,
                                           const uint32_t words) {
    const uint32_t *const end = inputs + (size_t)count * words * 2 * NEUTRON_PIXELS_DSP;
    for (int32_t lane = lane0; lane < lane1; lane++) {
        uint32_t *const to = sums + lane * NEUTRON_PIXELS_DSP;
        const int8_t *w = weights + lane * NEUTRON_LANES;
        const uint32_t *from = inputs;
        uint32_t sum[NEUTRON_PIXELS_DSP];
        NEUTRON_UNROLL
        for (int i = 0; i < NEUTRON_PIXELS_DSP; i++) sum[i] = start != NULL ? (uint32_t)start[lane] : to[i];
        do {
            NEUTRON_UNROLL
            for (uint32_t j = 0; j < words; j++) {
                const uint32_t word = neutron_load_aligned_word(w + 4 * j);
                const uint32_t even = neutron_even_bytes(word), odd = neutron_odd_bytes(word);
                NEUTRON_UNROLL
                for (int i = 0; i < NEUTRON_PIXELS_DSP; i++) sum[i] = multiply_word(sum[i], from + 2 * i, even, odd);
                from += 2 * NEUTRON_PIXELS_DSP;
            }
            w += BLOCK_BYTES;
        } while (from != end);
        NEUTRON_UNROLL
        for (int i = 0; i < NEUTRON_PIXELS_DSP; i++) to[i] = sum[i];
    }
}

void neutron_multiply_dsp(uint32_t *sums, const int32_t *start, const uint32_t *inputs, const int8_t *weights,
                          uint32_t count, int32_t lane0, int32_t lane1) {
    multiply_pixels(sums, start, inputs, weights, count, lane0, lane1, 2);
}

void neutron_multiply_thin_dsp(uint32_t *sums, const int32_t *start, const uint32_t *inputs, const int8_t *weights,
                               uint32_t count, int32_t lane0, int32_t lane1) {
    multiply_pixels(sums, start, inputs, weights, count, lane0, lane1, 1);
}

/* Of one pixel: four lanes at a time share the inputs. */
static void multiply_pixel(uint32_t *sums, const int32_t *start, const uint32_t *inputs, const int8_t *weights,
                           uint32_t count, int32_t lane0, int32_t lane1) {
    const uint32_t *const end = inputs + (size_t)count * 4;
    for (int32_t lane = lane0 & ~3; lane < lane1; lane += 4) {
        const int8_t *w = weights + lane * NEUTRON_LANES;
        const uint32_t *from = inputs;
        uint32_t sum[4];
        NEUTRON_UNROLL
        for (int k = 0; k < 4; k++) sum[k] = start != NULL ? (uint32_t)start[lane + k] : sums[lane + k];
        do {
            NEUTRON_UNROLL
            for (int j = 0; j < 2; j++) {
                const uint32_t x[2] = {neutron_kept(from[2 * j]), neutron_kept(from[2 * j + 1])};
                NEUTRON_UNROLL
                for (int k = 0; k < 4; k++) {
                    const uint32_t word = neutron_load_aligned_word(w + NEUTRON_LANES * k + 4 * j);
                    sum[k] = multiply_word(sum[k], x, neutron_even_bytes(word), neutron_odd_bytes(word));
                }
            }
            from += 4;
            w += BLOCK_BYTES;
        } while (from != end);
        NEUTRON_UNROLL
        for (int k = 0; k < 4; k++) sums[lane + k] = sum[k];
    }
}

/* ---- requantization ------------------------------------------------------------------------------------------------- */

int32_t neutron_rescaled_dsp(const NeutronConv2dS8 *p, int32_t x, int32_t multiplier, int32_t shift) {
    const int32_t sound = neutron_sound_multiplier(multiplier);
    return p->single_rounding != 0 ? neutron_rounded_once(x, sound, shift) : neutron_rounded_twice(x, sound, shift);
}

/* Up to 6 pixels, or one. */
typedef struct {
    const NeutronLayerDsp *layer;
    const NeutronPixelDsp *pixels;
    int32_t count, size; /* pixels to store, and pixels in the sums */
} Tile;

/* Output channels [lane0, lane1) of the 8 from `channel` on. */
typedef struct {
    int32_t channel, lane0, lane1;
    const NeutronRequantBlock *table;
} Lanes;

/* Sums to stored values before they are bounded, [pixel][lane]. */
static __attribute__((noinline)) void rescale_lanes(const NeutronConv2dS8 *p, const Tile *tile, const Lanes *lanes,
                                                    const uint32_t *sums, uint8_t *stored) {
    const int32_t zero_point = p->output_zero_point;
    const bool once = p->single_rounding != 0;
    for (int32_t lane = lanes->lane0; lane < lanes->lane1; lane++) {
        const uint32_t *from = sums + lane * tile->size, *const end = from + tile->count;
        uint8_t *to = stored + lane;
        const int32_t multiplier = lanes->table->multiplier[lane];
        const int32_t word = lanes->table->shift[lane], shift = once ? (int8_t)word : word;
        if (!neutron_dsp_scale_fits(multiplier, shift)) {
            for (; from != end; to += NEUTRON_LANES) {
                *to = neutron_dsp_byte(__qadd(neutron_rescaled_dsp(p, (int32_t)*from++, multiplier, word), zero_point));
            }
            continue;
        }
        NeutronDspScale scale = neutron_dsp_scale(multiplier, shift, zero_point);
        if (once) {
            /* 20 bits behind the point, as a signed number. */
            const int32_t fraction = (int32_t)((uint32_t)word >> 8 << 12);
            if (fraction < 0) scale.multiplier++;
            for (; from != end; to += NEUTRON_LANES) {
                *to = neutron_dsp_byte(neutron_dsp_rounded_once((int32_t)*from++, scale, fraction));
            }
        } else {
            for (; from != end; to += NEUTRON_LANES) {
                *to = neutron_dsp_byte(neutron_dsp_rounded_twice((int32_t)*from++, scale));
            }
        }
    }
}

static void store_lanes(const Tile *tile, const Lanes *lanes, const uint32_t *sums) {
    const NeutronConv2dS8 *p = tile->layer->call->params;
    const int32_t channel_pitch = tile->layer->call->buffers[p->output].channel_pitch;
    const uint32_t low = neutron_four_bytes(p->clamp_min), high = neutron_four_bytes(p->clamp_max);
    uint32_t stored[NEUTRON_PIXELS_DSP][2];
    rescale_lanes(p, tile, lanes, sums, (uint8_t *)stored);
    for (int32_t i = 0; i < tile->count; i++) {
        uint8_t *out = tile->pixels[i].out + (ptrdiff_t)lanes->channel * channel_pitch;
        for (int32_t j = 0; j < 2; j++) stored[i][j] = neutron_min_bytes(neutron_max_bytes(stored[i][j], low), high);
        if (channel_pitch == 1 && lanes->lane1 - lanes->lane0 == NEUTRON_LANES) {
            memcpy(out, stored[i], NEUTRON_LANES);
        } else {
            const uint8_t *from = (const uint8_t *)stored[i];
            for (int32_t k = lanes->lane0; k < lanes->lane1; k++) out[(ptrdiff_t)k * channel_pitch] = from[k];
        }
    }
}

/* ---- tiles ---------------------------------------------------------------------------------------------------------- */

static void fill_tile(const Tile *tile, const NeutronPartDsp *part, uint32_t *inputs) {
    for (int32_t i = 0; i < tile->size; i++) {
        /* Pixels past the last repeat it, and are not stored. */
        const NeutronPixelDsp *pixel = &tile->pixels[i < tile->count ? i : tile->count - 1];
        tile->layer->fill(tile->layer, pixel, part, inputs + 2 * i, 2 * (size_t)tile->size);
    }
}

/* All output channels: those of one group, and at most 32 of them, at a time. Inputs that fit into the buffer whole are
 * widened once for all channels of a group. */
static void compute_tile(const Tile *tile) {
    const NeutronLayerDsp *layer = tile->layer;
    const NeutronConv2dS8 *p = layer->call->params;
    const NeutronWindowExtents *w = &layer->call->window;
    const NeutronMultiplyDsp multiply = tile->size == 1 ? multiply_pixel : layer->multiply;
    const uint32_t most = NEUTRON_WORDS_DSP / ((uint32_t)tile->size * layer->words);
    uint32_t inputs[2 * NEUTRON_WORDS_DSP], sums[NEUTRON_CHANNELS_DSP * NEUTRON_PIXELS_DSP];
    NeutronPartDsp part = {.channel0 = -1};
    for (int32_t channel = w->channel0, end; channel < w->channel1; channel = end) {
        const int32_t group = channel / p->group_outputs, block = channel / NEUTRON_LANES * NEUTRON_LANES;
        const int32_t channel0 = group * p->group_inputs;
        end = min_of(min_of(block + NEUTRON_CHANNELS_DSP, w->channel1), (group + 1) * p->group_outputs);
        for (uint32_t first = 0; first < layer->blocks; first += part.count) {
            if (layer->blocks > most || part.channel0 != channel0) {
                part.channel0 = channel0;
                part.first = first;
                part.count = layer->blocks - first < most ? layer->blocks - first : most;
                fill_tile(tile, &part, inputs);
            }
            const bool last = first + part.count == layer->blocks;
            uint32_t *block_sums = sums;
            Lanes lanes = {.channel = block, .lane0 = channel - block};
            for (; lanes.channel < end; lanes.channel += NEUTRON_LANES, lanes.lane0 = 0) {
                const size_t constants = (size_t)(lanes.channel - p->constant_channel0) / NEUTRON_LANES;
                lanes.lane1 = min_of(end - lanes.channel, NEUTRON_LANES);
                lanes.table = neutron_requant_blocks(layer->call, p) + constants;
                multiply(block_sums, first == 0 ? lanes.table->bias : NULL, inputs,
                         neutron_packed_weights(layer->call, p) + (constants * layer->blocks + first) * BLOCK_BYTES,
                         part.count, lanes.lane0, lanes.lane1);
                if (last) store_lanes(tile, &lanes, block_sums);
                block_sums += NEUTRON_LANES * tile->size;
            }
        }
    }
}

void neutron_convolution_dsp(const NeutronLayerDsp *layer) {
    const NeutronKernelCall *call = layer->call;
    const NeutronConv2dS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    int32_t n = w->batch0, r = w->row0, c = w->col0;
    do {
        NeutronPixelDsp pixels[NEUTRON_PIXELS_DSP];
        Tile tile = {.layer = layer, .pixels = pixels};
        for (; tile.count < NEUTRON_PIXELS_DSP && n < w->batch1; tile.count++) {
            NeutronPixelDsp *pixel = &pixels[tile.count];
            pixel->n = n;
            pixel->row = r * p->stride_h - p->pad_top;
            pixel->col = c * p->stride_w - p->pad_left;
            pixel->out = neutron_element_address(call->bases, &call->buffers[p->output], n, r, c, 0);
            if (++c < w->col1) continue;
            c = w->col0;
            if (++r < w->row1) continue;
            r = w->row0;
            n++;
        }
        /* 6 pixels together take as long as 4 by themselves. */
        const bool together = tile.count > 4 || layer->words == 1;
        tile.size = together ? NEUTRON_PIXELS_DSP : 1;
        int32_t left = tile.count;
        if (!together) tile.count = 1;
        for (; left > 0; left -= tile.count, tile.pixels += tile.count) compute_tile(&tile);
    } while (n < w->batch1);
}

#endif
