/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_s16 with AVX2. The inputs of all taps of 4 outputs are side by side, padding included; each block of 8 of them is
 * multiplied with 8 output channels' weights, pair by pair, and added up in 32 bits as long as these hold the sum. */
#include "conv_2d/avx2.h"
#include "convolution_16.h"

#if NEUTRON_X86_VARIANTS

enum {
    PIXELS = 4,         /* outputs at a time */
    MOST_BLOCKS = 2048, /* of 8 inputs, of all taps of an output */
    PART = 63,          /* blocks whose 504 products, of 22 bits and a sign each, fit 32 bits together */
    BLOCK_BYTES = NEUTRON_LANES * NEUTRON_LANES,
};

typedef struct {
    const NeutronKernelCall *call;
    const NeutronConv2dS16 *p;
    const NeutronBuffer *input;
    int32_t tap_blocks, blocks; /* of one tap, and of all */
} Layer;

/* The addresses of the inputs of up to 4 outputs. */
typedef struct {
    const uint8_t *inputs[PIXELS];
    uint8_t *out[PIXELS]; /* the first channel of the window */
    int32_t count;
} Tile;

/* Channels of one tap, and zeros up to a multiple of 8. */
NEUTRON_VECTOR_INLINE void fill_tap(int16_t *to, const uint8_t *from, int32_t pitch, int32_t channels) {
    if (pitch == 2) {
        for (; channels >= NEUTRON_LANES; channels -= NEUTRON_LANES, to += NEUTRON_LANES, from += 2 * NEUTRON_LANES) {
            _mm_storeu_si128((void *)to, _mm_loadu_si128((const void *)from));
        }
    }
    for (; channels > 0; channels -= NEUTRON_LANES, to += NEUTRON_LANES, from += (ptrdiff_t)NEUTRON_LANES * pitch) {
        const int32_t some = channels < NEUTRON_LANES ? channels : NEUTRON_LANES;
        for (int32_t i = 0; i < some; i++) to[i] = neutron_load_16(from + (ptrdiff_t)i * pitch);
        for (int32_t i = some; i < NEUTRON_LANES; i++) to[i] = 0;
    }
}

/* All taps of an output, by the input element of its tap (0, 0). */
NEUTRON_VECTOR static void fill(const Layer *layer, int16_t *to, int32_t n, int32_t row0, int32_t col0, int32_t channel0) {
    const NeutronConv2dS16 *p = layer->p;
    const NeutronBuffer *input = layer->input;
    const int32_t tap = layer->tap_blocks * NEUTRON_LANES;
    for (int32_t i = 0; i < p->kernel_h; i++) {
        const int32_t row = row0 + i * p->dilation_h;
        if (row < 0 || row >= input->rows) {
            memset(to, 0, (size_t)tap * (size_t)p->kernel_w * sizeof *to);
            to += (ptrdiff_t)tap * p->kernel_w;
            continue;
        }
        const uint8_t *line = neutron_element_address(layer->call->bases, input, n, row, 0, channel0);
        for (int32_t j = 0; j < p->kernel_w; j++, to += tap) {
            const int32_t col = col0 + j * p->dilation_w;
            if (col < 0 || col >= input->cols) {
                memset(to, 0, (size_t)tap * sizeof *to);
            } else {
                fill_tap(to, line + (ptrdiff_t)col * input->col_pitch, input->channel_pitch, p->group_inputs);
            }
        }
    }
}

/* ---- sums of products ----------------------------------------------------------------------------------------------- */

/* The products of `blocks` blocks with 4 output channels' weights: two vectors for each pixel, [channel][4 parts of a sum]. */
NEUTRON_VECTOR_INLINE void multiply_half(__m256i (*sums)[2], const Tile *tile, ptrdiff_t first, int32_t blocks,
                                       const int8_t *weights, const int32_t pixels) {
    for (int i = 0; i < pixels; i++) sums[i][0] = sums[i][1] = _mm256_setzero_si256();
    for (int32_t b = 0; b < blocks; b++, weights += BLOCK_BYTES) {
        const __m256i w0 = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)weights));
        const __m256i w1 = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(weights + 2 * NEUTRON_LANES)));
        NEUTRON_UNROLL
        for (int i = 0; i < pixels; i++) {
            const void *from = tile->inputs[i] + (first + b) * 2 * NEUTRON_LANES;
            const __m256i x = _mm256_broadcastsi128_si256(_mm_loadu_si128(from));
            sums[i][0] = _mm256_add_epi32(sums[i][0], _mm256_madd_epi16(w0, x));
            sums[i][1] = _mm256_add_epi32(sums[i][1], _mm256_madd_epi16(w1, x));
        }
    }
}

/* Adds a part of the blocks to the sums of 8 output channels, [pixel][channels 0 to 3, 4 to 7]. */
NEUTRON_VECTOR_INLINE void add_part(__m256i (*wide)[2], const Tile *tile, ptrdiff_t first, int32_t blocks,
                                  const int8_t *weights, const int32_t pixels) {
    __m256i low[PIXELS][2], high[PIXELS][2];
    multiply_half(low, tile, first, blocks, weights, pixels);
    multiply_half(high, tile, first, blocks, weights + 4 * NEUTRON_LANES, pixels);
    /* From [0 2 4 6 1 3 5 7]. */
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (int i = 0; i < pixels; i++) {
        const __m256i pairs = _mm256_hadd_epi32(_mm256_hadd_epi32(low[i][0], low[i][1]),
                                                _mm256_hadd_epi32(high[i][0], high[i][1]));
        const __m256i sums = _mm256_permutevar8x32_epi32(pairs, order);
        wide[i][0] = _mm256_add_epi64(wide[i][0], _mm256_cvtepi32_epi64(_mm256_castsi256_si128(sums)));
        wide[i][1] = _mm256_add_epi64(wide[i][1], _mm256_cvtepi32_epi64(_mm256_extracti128_si256(sums, 1)));
    }
}

/* ---- requantization ------------------------------------------------------------------------------------------------- */

/* neutron_rescaled_64() of 4 sums; multipliers are not below 0. */
NEUTRON_VECTOR_INLINE __m256i rescaled(__m256i sums, __m128i multipliers, __m128i shifts) {
    const __m256i one = _mm256_set1_epi64x(1), top = _mm256_set1_epi64x(INT64_MIN);
    const __m128i sound = _mm_min_epi32(_mm_max_epi32(shifts, _mm_set1_epi32(-31)), _mm_set1_epi32(14));
    const __m256i right = _mm256_cvtepi32_epi64(_mm_sub_epi32(_mm_set1_epi32(15), sound));
    const __m256i by = _mm256_cvtepi32_epi64(multipliers);
    const __m256i upper = _mm256_slli_epi64(_mm256_mul_epu32(_mm256_srli_epi64(sums, 32), by), 32);
    const __m256i product = _mm256_add_epi64(_mm256_mul_epu32(sums, by), upper);
    const __m256i nudged = _mm256_add_epi64(product, _mm256_sllv_epi64(one, _mm256_sub_epi64(right, one)));
    /* There is no arithmetic shift of 64 bits. */
    return _mm256_sub_epi64(_mm256_srlv_epi64(_mm256_xor_si256(nudged, top), right), _mm256_srlv_epi64(top, right));
}

NEUTRON_VECTOR_INLINE __m128i four(const void *from) { return _mm_loadu_si128(from); }

NEUTRON_VECTOR_INLINE void store_block(const Layer *layer, const Tile *tile, const NeutronRequantBlock16 *table,
                                     const __m256i (*wide)[2], ptrdiff_t channel, int32_t count) {
    const NeutronConv2dS16 *p = layer->p;
    const int32_t pitch = layer->call->buffers[p->output].channel_pitch;
    const __m256i negative = _mm256_loadu_si256((const void *)table->multiplier);
    const bool in_vectors = p->rounding == 0 && _mm256_movemask_ps(_mm256_castsi256_ps(negative)) == 0;
    const __m256i low = _mm256_set1_epi32(p->clamp_min), high = _mm256_set1_epi32(p->clamp_max);
    for (int i = 0; i < tile->count; i++) {
        uint8_t *const out = tile->out[i] + channel * pitch;
        if (!in_vectors) {
            uint64_t sums[NEUTRON_LANES];
            memcpy(sums, wide[i], sizeof sums);
            neutron_store_accumulators_16(p, table, sums, out, pitch, count);
            continue;
        }
        const __m256i first = rescaled(wide[i][0], four(table->multiplier), four(table->shift));
        const __m256i second = rescaled(wide[i][1], four(table->multiplier + 4), four(table->shift + 4));
        const __m256 words = _mm256_shuffle_ps(_mm256_castsi256_ps(first), _mm256_castsi256_ps(second), 0x88);
        const __m256i in_order = _mm256_permute4x64_epi64(_mm256_castps_si256(words), 0xD8);
        const __m256i bounded = _mm256_min_epi32(_mm256_max_epi32(in_order, low), high);
        const __m128i stored = _mm_packs_epi32(_mm256_castsi256_si128(bounded), _mm256_extracti128_si256(bounded, 1));
        if (pitch == 2 && count == NEUTRON_LANES) {
            _mm_storeu_si128((void *)out, stored);
        } else {
            int16_t block[NEUTRON_LANES];
            memcpy(block, &stored, sizeof block);
            for (int32_t k = 0; k < count; k++) neutron_store_16(out + (ptrdiff_t)k * pitch, block[k]);
        }
    }
}

/* Biases of channels 0 to 3 or 4 to 7. */
NEUTRON_VECTOR_INLINE __m256i biases(const NeutronRequantBlock16 *table, int32_t first) {
    const __m256i low = _mm256_cvtepu32_epi64(four(table->bias_low + first));
    return _mm256_or_si256(low, _mm256_slli_epi64(_mm256_cvtepi32_epi64(four(table->bias_high + first)), 32));
}

/* Output channels [channel, end) of the window, which are of one group. */
NEUTRON_VECTOR_INLINE void compute_channels(const Layer *layer, const Tile *tile, int32_t channel, int32_t end,
                                          const int32_t pixels) {
    const NeutronConv2dS16 *p = layer->p;
    const int32_t window0 = layer->call->window.channel0;
    for (; channel < end; channel += NEUTRON_LANES) {
        const ptrdiff_t block = (channel - p->constant_channel0) / NEUTRON_LANES;
        const NeutronRequantBlock16 *table = neutron_requant_blocks_16(layer->call, p) + block;
        const int8_t *weights = neutron_packed_weights(layer->call, layer->call->params) + block * layer->blocks * BLOCK_BYTES;
        __m256i wide[PIXELS][2];
        for (int i = 0; i < pixels; i++) {
            wide[i][0] = biases(table, 0);
            wide[i][1] = biases(table, 4);
        }
        for (int32_t first = 0; first < layer->blocks; first += PART) {
            const int32_t count = layer->blocks - first < PART ? layer->blocks - first : PART;
            add_part(wide, tile, first, count, weights + (ptrdiff_t)first * BLOCK_BYTES, pixels);
        }
        const int32_t count = end - channel < NEUTRON_LANES ? end - channel : NEUTRON_LANES;
        store_block(layer, tile, table, (const __m256i(*)[2])wide, channel - window0, count);
    }
}

NEUTRON_VECTOR __attribute__((noinline)) static void compute_4(const Layer *layer, const Tile *tile, int32_t channel,
                                                             int32_t end) {
    compute_channels(layer, tile, channel, end, PIXELS);
}

NEUTRON_VECTOR __attribute__((noinline)) static void compute_1(const Layer *layer, const Tile *tile, int32_t channel,
                                                             int32_t end) {
    Tile one = {.count = 1};
    for (int i = 0; i < tile->count; i++) {
        one.inputs[0] = tile->inputs[i];
        one.out[0] = tile->out[i];
        compute_channels(layer, &one, channel, end, 1);
    }
}

/* ---- tiles ---------------------------------------------------------------------------------------------------------- */

/* The inputs of an output where they are, or NULL: of one point inside, side by side, a multiple of 8. */
static const uint8_t *in_place(const Layer *layer, int32_t n, int32_t row, int32_t col, int32_t channel0) {
    const NeutronConv2dS16 *p = layer->p;
    const NeutronBuffer *input = layer->input;
    if (p->kernel_h * p->kernel_w != 1 || input->channel_pitch != 2 || p->group_inputs % NEUTRON_LANES != 0) return NULL;
    if (row < 0 || row >= input->rows || col < 0 || col >= input->cols) return NULL;
    return neutron_element_address(layer->call->bases, input, n, row, col, channel0);
}

/* Columns [c, c + tile->count) of an output row. */
NEUTRON_VECTOR static void run_tile(const Layer *layer, Tile *tile, int32_t n, int32_t r, int32_t c, int16_t *patches) {
    const NeutronConv2dS16 *p = layer->p;
    const NeutronWindowExtents *w = &layer->call->window;
    const NeutronBuffer *output = &layer->call->buffers[p->output];
    const int32_t row = r * p->stride_h - p->pad_top;
    for (int32_t channel = w->channel0, end; channel < w->channel1; channel = end) {
        const int32_t group = channel / p->group_outputs, channel0 = group * p->group_inputs;
        end = (group + 1) * p->group_outputs < w->channel1 ? (group + 1) * p->group_outputs : w->channel1;
        for (int i = 0; i < tile->count; i++) {
            const int32_t col = (c + i) * p->stride_w - p->pad_left;
            tile->out[i] = neutron_element_address(layer->call->bases, output, n, r, c + i, w->channel0);
            tile->inputs[i] = in_place(layer, n, row, col, channel0);
            if (tile->inputs[i] != NULL) continue;
            int16_t *const patch = patches + (ptrdiff_t)i * layer->blocks * NEUTRON_LANES;
            fill(layer, patch, n, row, col, channel0);
            tile->inputs[i] = (const uint8_t *)patch;
        }
        (tile->count == PIXELS ? compute_4 : compute_1)(layer, tile, channel, end);
    }
}

NEUTRON_VECTOR bool conv_2d_s16_run_avx2(const NeutronKernelCall *call) {
    const NeutronConv2dS16 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const int64_t tap_blocks = (int64_t)neutron_blocks_of(p->group_inputs);
    const int64_t blocks = tap_blocks * p->kernel_h * p->kernel_w;
    const bool one_group = p->group_outputs >= w->channel1;
    if (blocks > MOST_BLOCKS || !(one_group || p->group_outputs % NEUTRON_LANES == 0)) return false;
    const Layer layer = {call, p, &call->buffers[p->input], (int32_t)tap_blocks, (int32_t)blocks};
    int16_t patches[PIXELS * MOST_BLOCKS * NEUTRON_LANES];
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        Tile tile = {.count = 0};
        for (int32_t c = w->col0; c < w->col1; c += tile.count) {
            tile.count = w->col1 - c < PIXELS ? w->col1 - c : PIXELS;
            run_tile(&layer, &tile, n, r, c, patches);
        }
    }
    return true;
}

#endif
