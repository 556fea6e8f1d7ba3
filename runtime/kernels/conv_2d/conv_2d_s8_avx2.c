/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_s8 and conv_2d_1x1_s8 for AVX2: 3 pixels of a row by 8 output channels in registers, all taps at a stretch.
 *
 * Bytes are widened to 16 bits and multiplied in pairs. A packed block [8 k][8 inputs] is four vectors of two channels;
 * each of their accumulators holds two times four sums, which are put together at the end. */
#include "avx2.h"

#if NEUTRON_X86_VARIANTS

enum { PIXELS = 3 };

typedef struct {
    const NeutronKernelCall *call;
    const NeutronConv2dS8 *p;
    const NeutronBuffer *input;
    NeutronRange256 range;
    size_t group_bytes; /* packed weights of 8 output channels */
} Layer;

/* Where a block of outputs looks in the input, for the tap (0, 0), and where it writes. */
typedef struct {
    int32_t n, row, col, channel;
    uint8_t *out;
    ptrdiff_t out_pitch;
    int32_t pixels, channels;
} Place;

NEUTRON_AVX2_INLINE __m256i weights_256(const int8_t *weights) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)weights));
}

NEUTRON_AVX2_INLINE void multiply_block(__m256i sums[PIXELS][4], const int8_t *weights, const __m128i *inputs,
                                        const int pixels) {
    __m256i x[PIXELS];
#pragma GCC unroll 3
    for (int p = 0; p < pixels; p++) x[p] = _mm256_cvtepi8_epi16(_mm_broadcastq_epi64(inputs[p]));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m256i w = weights_256(weights + 16 * i);
#pragma GCC unroll 3
        for (int p = 0; p < pixels; p++) sums[p][i] = _mm256_add_epi32(sums[p][i], _mm256_madd_epi16(x[p], w));
    }
}

NEUTRON_AVX2_INLINE __m256i folded(const __m256i sums[4]) {
    const __m256i mixed =
        _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
    return _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

NEUTRON_AVX2_INLINE void compute_block(const Layer *layer, const Place *at, const int8_t *weights,
                                       const NeutronRescale256 *rescale, const int pixels) {
    const NeutronConv2dS8 *p = layer->p;
    const NeutronBuffer *input = layer->input;
    const size_t whole = (size_t)p->group_inputs / 8, rest = (size_t)p->group_inputs % 8;
    uint8_t padding[8];
    memset(padding, p->input_zero_point, sizeof padding);
    __m256i sums[PIXELS][4];
#pragma GCC unroll 3
    for (int k = 0; k < pixels; k++) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) sums[k][i] = _mm256_setzero_si256();
    }
    for (int32_t i = 0; i < p->kernel_h; i++) {
        const int32_t row = at->row + i * p->dilation_h;
        const bool row_is_inside = row >= 0 && row < input->rows;
        const uint8_t *line =
            row_is_inside ? neutron_row_address(layer->call->bases, input, at->n, row) + at->channel : NULL;
        for (int32_t j = 0; j < p->kernel_w; j++) {
            /* A pixel outside the input is 8 bytes of its zero point, again and again. */
            const uint8_t *pixel[PIXELS];
            size_t step[PIXELS];
            __m128i x[PIXELS];
#pragma GCC unroll 3
            for (int k = 0; k < pixels; k++) {
                const int32_t col = at->col + k * p->stride_w + j * p->dilation_w;
                const bool inside = row_is_inside && col >= 0 && col < input->cols;
                pixel[k] = inside ? line + (ptrdiff_t)col * input->col_pitch : padding;
                step[k] = inside ? 8 : 0;
            }
            for (size_t b = 0; b < whole; b++, weights += 64) {
#pragma GCC unroll 3
                for (int k = 0; k < pixels; k++) {
                    x[k] = neutron_bytes_128(pixel[k], 8);
                    pixel[k] += step[k];
                }
                multiply_block(sums, weights, x, pixels);
            }
            if (rest != 0) {
#pragma GCC unroll 3
                for (int k = 0; k < pixels; k++) x[k] = neutron_bytes_128(pixel[k], rest);
                multiply_block(sums, weights, x, pixels);
                weights += 64;
            }
        }
    }
#pragma GCC unroll 3
    for (int k = 0; k < pixels; k++) {
        neutron_store_256(folded(sums[k]), rescale, &layer->range, at->out + k * at->out_pitch, at->channels);
    }
}

NEUTRON_AVX2 __attribute__((noinline)) static void compute_3(const Layer *layer, const Place *at,
                                                             const int8_t *weights, const NeutronRescale256 *rescale) {
    compute_block(layer, at, weights, rescale, PIXELS);
}
NEUTRON_AVX2 __attribute__((noinline)) static void compute_1(const Layer *layer, const Place *at,
                                                             const int8_t *weights, const NeutronRescale256 *rescale) {
    compute_block(layer, at, weights, rescale, 1);
}

NEUTRON_AVX2 bool neutron_convolve_avx2(const NeutronKernelCall *call) {
    const NeutronConv2dS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *input = &call->buffers[p->input], *output = &call->buffers[p->output];
    if (input->channel_pitch != 1 || output->channel_pitch != 1) return false;
    /* 8 channels of a block with inputs of their own. */
    if (p->group_outputs % 8 != 0 && p->group_outputs != output->channels) return false;
    Layer layer = {.call = call, .p = p, .input = input, .range = neutron_range_256(p)};
    layer.group_bytes = (size_t)p->kernel_h * (size_t)p->kernel_w * neutron_blocks_of(p->group_inputs) * 64;
    for (int32_t k = w->channel0; k < w->channel1; k += 8) {
        const size_t group = (size_t)(k - p->constant_channel0) / 8;
        const int8_t *weights = neutron_packed_weights(call, p) + group * layer.group_bytes;
        const NeutronRescale256 rescale =
            neutron_rescale_256(neutron_requant_blocks(call, p) + group, p->single_rounding != 0);
        if (p->single_rounding != 0 && neutron_shifts_left_256(&rescale)) return false;
        Place at = {.out_pitch = output->col_pitch, .channels = w->channel1 - k};
        at.channel = k / p->group_outputs * p->group_inputs;
        for (at.n = w->batch0; at.n < w->batch1; at.n++) {
            for (int32_t r = w->row0; r < w->row1; r++) {
                at.row = r * p->stride_h - p->pad_top;
                uint8_t *const out = neutron_element_address(call->bases, output, at.n, r, 0, k);
                for (int32_t c = w->col0; c < w->col1; c += at.pixels) {
                    at.pixels = w->col1 - c >= PIXELS ? PIXELS : 1;
                    at.col = c * p->stride_w - p->pad_left;
                    at.out = out + (ptrdiff_t)c * output->col_pitch;
                    (at.pixels == PIXELS ? compute_3 : compute_1)(&layer, &at, weights, &rescale);
                }
            }
        }
    }
    return true;
}

bool conv_2d_s8_run_avx2(const NeutronKernelCall *call) { return neutron_convolve_avx2(call); }

#endif
