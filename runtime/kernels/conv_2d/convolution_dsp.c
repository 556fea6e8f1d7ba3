/* SPDX-License-Identifier: BSD-3-Clause */
/* Tiles of outputs for the DSP extension: 6 pixels by one output channel in registers, or one pixel by four channels. */
#include "convolution_dsp.h"

#if NEUTRON_DSP

enum { BLOCK_BYTES = NEUTRON_LANES * NEUTRON_LANES, LANES_OF_A_PIXEL = 4 };

static inline int32_t min_of(int32_t a, int32_t b) { return a < b ? a : b; }
static inline int32_t first_of_block(int32_t channel) { return channel & -NEUTRON_LANES; }

void neutron_widen_dsp(uint32_t *to, size_t pitch, const uint8_t *from, int32_t channel_pitch, int32_t channels,
                       uint32_t words) {
    uint32_t whole = channel_pitch == 1 ? (uint32_t)channels / 4 : 0;
    if (whole > words) whole = words;
    words -= whole;
    channels -= (int32_t)(4 * whole);
    for (; whole > 0; whole--, to += pitch) {
        neutron_widen_word_dsp(to, neutron_load_word(from));
        from = neutron_kept_pointer(from + 4);
    }
    for (; words > 0; words--, channels -= 4, from += 4 * channel_pitch, to += pitch) {
        neutron_widen_word_dsp(to, neutron_gathered_word_dsp(from, channel_pitch, channels));
    }
}

/* ---- sums of products ----------------------------------------------------------------------------------------------- */

/* Adds the products of 4 inputs, widened, with 4 weights. */
static NEUTRON_INLINE uint32_t multiply_word(uint32_t sum, const uint32_t *inputs, uint32_t even, uint32_t odd) {
    return neutron_add_products(sum, even, odd, inputs[0], inputs[1]);
}

static NEUTRON_INLINE void multiply_pixels(uint32_t *sums, const uint32_t *inputs, const uint32_t *end,
                                           const int8_t *weights, const int32_t *start, const uint32_t words) {
    uint32_t sum[NEUTRON_PIXELS_DSP];
    if (start != NULL) {
        NEUTRON_UNROLL
        for (int i = 0; i < NEUTRON_PIXELS_DSP; i++) sum[i] = (uint32_t)*start;
    } else {
        NEUTRON_UNROLL
        for (int i = 0; i < NEUTRON_PIXELS_DSP; i++) sum[i] = sums[i];
    }
    do {
        NEUTRON_UNROLL
        for (uint32_t j = 0; j < words; j++) {
            const uint32_t word = neutron_load_aligned_word(weights + 4 * j);
            const uint32_t even = neutron_even_bytes(word), odd = neutron_odd_bytes(word);
            NEUTRON_UNROLL
            for (int i = 0; i < NEUTRON_PIXELS_DSP; i++) sum[i] = multiply_word(sum[i], inputs + 2 * i, even, odd);
            inputs += 2 * NEUTRON_PIXELS_DSP;
        }
        weights += BLOCK_BYTES;
    } while (inputs != end);
    NEUTRON_UNROLL
    for (int i = 0; i < NEUTRON_PIXELS_DSP; i++) sums[i] = sum[i];
}

void neutron_multiply_dsp(uint32_t *sums, const uint32_t *inputs, const uint32_t *end, const int8_t *weights,
                          const int32_t *start) {
    multiply_pixels(sums, inputs, end, weights, start, 2);
}

void neutron_multiply_thin_dsp(uint32_t *sums, const uint32_t *inputs, const uint32_t *end, const int8_t *weights,
                               const int32_t *start) {
    multiply_pixels(sums, inputs, end, weights, start, 1);
}

/* Adds the products of one pixel: four lanes share the inputs. */
void neutron_multiply_one_dsp(uint32_t *sums, const uint32_t *inputs, const uint32_t *end, const int8_t *weights,
                              const int32_t *start) {
    uint32_t sum[LANES_OF_A_PIXEL];
    NEUTRON_UNROLL
    for (int k = 0; k < LANES_OF_A_PIXEL; k++) sum[k] = start != NULL ? (uint32_t)start[k] : sums[k];
    do {
        NEUTRON_UNROLL
        for (int j = 0; j < 2; j++) {
            const uint32_t x[2] = {neutron_kept(inputs[2 * j]), neutron_kept(inputs[2 * j + 1])};
            NEUTRON_UNROLL
            for (int k = 0; k < LANES_OF_A_PIXEL; k++) {
                const uint32_t word = neutron_load_aligned_word(weights + NEUTRON_LANES * k + 4 * j);
                sum[k] = multiply_word(sum[k], x, neutron_even_bytes(word), neutron_odd_bytes(word));
            }
        }
        inputs += 4;
        weights += BLOCK_BYTES;
    } while (inputs != end);
    NEUTRON_UNROLL
    for (int k = 0; k < LANES_OF_A_PIXEL; k++) sums[k] = sum[k];
}

/* ---- requantization ------------------------------------------------------------------------------------------------- */

int32_t neutron_rescaled_dsp(const NeutronConv2dS8 *p, int32_t x, int32_t multiplier, int32_t shift) {
    const int32_t sound = neutron_sound_multiplier(multiplier);
    return p->single_rounding != 0 ? neutron_rounded_once(x, sound, shift) : neutron_rounded_twice(x, sound, shift);
}

static inline const NeutronLayerDsp *layer_of(const NeutronTileDsp *tile) { return tile->layer; }

/* Output channels [lane0, lane1) of the 8 from `channel` on. */
typedef struct {
    int32_t channel, lane0, lane1;
    const NeutronRequantBlock *table;
} Lanes;

/* The sums of all lanes. start: biases, or NULL. */
static __attribute__((noinline)) void multiply_lanes(const NeutronTileDsp *tile, const Lanes *lanes, uint32_t *sums,
                                                     const uint32_t *inputs, const uint32_t *end, const int8_t *weights,
                                                     const int32_t *start) {
    const NeutronMultiplyDsp multiply = tile->size == 1 ? neutron_multiply_one_dsp : layer_of(tile)->multiply;
    const int32_t step = tile->size == 1 ? LANES_OF_A_PIXEL : 1;
    for (int32_t lane = lanes->lane0 & -step; lane < lanes->lane1; lane += step) {
        multiply(sums + lane * tile->size, inputs, end, weights + lane * NEUTRON_LANES,
                 start != NULL ? start + lane : NULL);
    }
}

/* Sums to stored values before they are bounded, [pixel][lane]. */
static __attribute__((noinline)) void rescale_lanes(const NeutronConv2dS8 *p, const NeutronTileDsp *tile, const Lanes *lanes,
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
            do {
                *to = neutron_dsp_byte(neutron_dsp_rounded_once((int32_t)*from++, scale, fraction));
                to += NEUTRON_LANES;
            } while (from != end);
        } else {
            do {
                *to = neutron_dsp_byte(neutron_dsp_rounded_twice((int32_t)*from++, scale));
                to += NEUTRON_LANES;
            } while (from != end);
        }
    }
}

static void store_lanes(const NeutronTileDsp *tile, const Lanes *lanes, const uint32_t *sums) {
    const NeutronConv2dS8 *p = layer_of(tile)->call->params;
    const int32_t channel_pitch = layer_of(tile)->call->buffers[p->output].channel_pitch;
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

static void fill_tile(const NeutronTileDsp *tile, const NeutronPartDsp *part, uint32_t *inputs) {
    const NeutronLayerDsp *layer = tile->layer;
    for (int32_t i = 0; i < tile->size; i++) {
        /* Pixels past the last repeat it, and are not stored. */
        const NeutronPixelDsp *pixel = &tile->pixels[min_of(i, tile->count - 1)];
        layer->fill(layer, pixel, part, inputs + 2 * i, 2 * (size_t)tile->size);
    }
}

/* Adds a part of the inputs to the output channels [channel, end), which are at most 32 and of one group; stores what is
 * then complete. */
static void compute_channels(const NeutronTileDsp *tile, const NeutronPartDsp *part, const uint32_t *inputs, uint32_t *sums,
                             int32_t channel, int32_t end) {
    const NeutronLayerDsp *layer = tile->layer;
    const NeutronConv2dS8 *p = layer->call->params;
    const uint32_t *const inputs_end = inputs + 2 * part->count * layer->words * (uint32_t)tile->size;
    const size_t block_bytes = (size_t)layer->blocks * BLOCK_BYTES;
    Lanes lanes = {.channel = first_of_block(channel)};
    const size_t block = (size_t)(lanes.channel - p->constant_channel0) / NEUTRON_LANES;
    const int8_t *weights = neutron_packed_weights(layer->call, p) + block * block_bytes + part->first * BLOCK_BYTES;
    lanes.table = neutron_requant_blocks(layer->call, p) + block;
    lanes.lane0 = channel - lanes.channel;
    while (lanes.channel < end) {
        lanes.lane1 = min_of(end - lanes.channel, NEUTRON_LANES);
        multiply_lanes(tile, &lanes, sums, inputs, inputs_end, weights, part->first == 0 ? lanes.table->bias : NULL);
        if (part->first + part->count == layer->blocks) store_lanes(tile, &lanes, sums);
        weights += block_bytes;
        sums += NEUTRON_LANES * tile->size;
        lanes.table++;
        lanes.channel += NEUTRON_LANES;
        lanes.lane0 = 0;
    }
}

/* All output channels. Inputs that fit into the buffer whole are widened once for a group. */
static void compute_tile(const NeutronTileDsp *tile) {
    const NeutronLayerDsp *layer = tile->layer;
    const NeutronConv2dS8 *p = layer->call->params;
    const NeutronWindowExtents *w = &layer->call->window;
    const uint32_t most = NEUTRON_WORDS_DSP / ((uint32_t)tile->size * layer->words);
    uint32_t inputs[2 * NEUTRON_WORDS_DSP], sums[NEUTRON_CHANNELS_DSP * NEUTRON_PIXELS_DSP];
    NeutronPartDsp part = {.channel0 = -1};
    for (int32_t channel = w->channel0, end; channel < w->channel1; channel = end) {
        const int32_t group = channel / p->group_outputs, channel0 = group * p->group_inputs;
        end = min_of(first_of_block(channel) + NEUTRON_CHANNELS_DSP, w->channel1);
        end = min_of(end, (group + 1) * p->group_outputs);
        for (part.first = 0; part.first < layer->blocks; part.first += part.count) {
            if (layer->blocks > most || part.channel0 != channel0) {
                part.channel0 = channel0;
                part.count = layer->blocks - part.first < most ? layer->blocks - part.first : most;
                fill_tile(tile, &part, inputs);
            }
            compute_channels(tile, &part, inputs, sums, channel, end);
        }
    }
}

void neutron_convolution_dsp(NeutronLayerDsp *layer) {
    const NeutronConv2dS8 *p = layer->call->params;
    layer->input = neutron_element_address(layer->call->bases, &layer->call->buffers[p->input], 0, 0, 0, 0);
    neutron_compute_tiles_dsp(layer->call, layer, layer->words == 1, compute_tile);
}

#endif
