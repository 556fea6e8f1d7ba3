/* SPDX-License-Identifier: BSD-3-Clause */
/* depthwise_conv_2d_s8 for AVX2: 8 channels at a time, depth multiplier 1.
 *
 * Two kernel rows make one multiplication of pairs: a column of the input is one vector, whose lane k has the two values
 * of channel k, widened to 16 bits, in the two rows that the taps look at. An output is the sum over the kernel's columns
 * of such vectors times vectors of weights in the same order; neighbouring outputs share columns. */
#include "conv_2d/avx2.h"

#if NEUTRON_X86_VARIANTS

enum {
    WEIGHT_VECTORS = 64, /* of 8 channels */
    COLUMN_VECTORS = 96, /* of a stretch of a row */
    KERNEL_ROWS = 32
};

typedef struct {
    const NeutronKernelCall *call;
    const NeutronDepthwiseConv2dS8 *p;
    const NeutronBuffer *input;
    NeutronRange256 range;
    NeutronRescale256 rescale;
    NeutronRescaleKind256 kind;
    NeutronDepthwiseShape shape; /* parts: pairs of kernel rows */
    int32_t channel, channels;
    __m256i weights[WEIGHT_VECTORS]; /* [pair][kernel_w] */
} Layer;

/* Two rows of the input at column 0; those outside it, and one past the kernel, are 8 bytes again and again. */
typedef struct {
    const uint8_t *row[2];
    ptrdiff_t pitch[2];
} Pair;

NEUTRON_VECTOR_INLINE __m256i paired(__m128i a, __m128i b) { return _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(a, b)); }

NEUTRON_VECTOR static void prepare_weights(Layer *layer, const int8_t *weights) {
    const NeutronDepthwiseConv2dS8 *p = layer->p;
    const size_t row_bytes = (size_t)p->kernel_w * 8;
    __m256i *vector = layer->weights;
    for (int32_t i = 0; i < p->kernel_h; i += 2, weights += 2 * row_bytes) {
        for (int32_t j = 0; j < p->kernel_w; j++) {
            const void *first = weights + (size_t)j * 8, *second = weights + row_bytes + (size_t)j * 8;
            const __m128i a = _mm_loadl_epi64((const __m128i *)first);
            const __m128i b = i + 1 < p->kernel_h ? _mm_loadl_epi64((const __m128i *)second) : _mm_setzero_si128();
            *vector++ = paired(a, b);
        }
    }
}

/* Columns [first, end) of the input, padding included. */
NEUTRON_VECTOR_INLINE void load_columns(const Layer *layer, __m256i *columns, const Pair *pair, int32_t first,
                                      int32_t end, size_t channels) {
    const __m256i padding = _mm256_set1_epi16((short)layer->p->input_zero_point);
    int32_t col = first;
    for (; col < end && col < 0; col++) *columns++ = padding;
    const int32_t inside = end < layer->input->cols ? end : layer->input->cols;
    for (; col < inside; col++) {
        *columns++ = paired(neutron_bytes_128(pair->row[0] + col * pair->pitch[0], channels),
                            neutron_bytes_128(pair->row[1] + col * pair->pitch[1], channels));
    }
    for (; col < end; col++) *columns++ = padding;
}

NEUTRON_VECTOR_INLINE __m256i sum_taps(const Layer *layer, const __m256i *columns, int32_t per_pair) {
    const NeutronDepthwiseConv2dS8 *p = layer->p;
    const __m256i *weights = layer->weights;
    __m256i sum = _mm256_setzero_si256();
    for (int32_t i = 0; i < layer->shape.parts; i++) {
        const __m256i *column = columns + (ptrdiff_t)i * per_pair;
        for (int32_t j = 0; j < p->kernel_w; j++, column += p->dilation_w) {
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(*column, *weights++));
        }
    }
    return sum;
}

NEUTRON_VECTOR_INLINE void compute_stretch(const Layer *layer, const __m256i *columns, int32_t per_pair, int32_t outputs,
                                         uint8_t *out, ptrdiff_t pitch, const NeutronRescaleKind256 kind) {
    const int32_t stride = layer->p->stride_w;
    for (int32_t c = 0; c < outputs; c += 2, columns += 2 * (ptrdiff_t)stride, out += 2 * pitch) {
        /* In twos; where one is left over, its columns are all that is there. */
        const bool two = c + 1 < outputs;
        const __m256i a = sum_taps(layer, columns, per_pair);
        const __m256i b = two ? sum_taps(layer, columns + stride, per_pair) : a;
        const __m128i stored = neutron_stored_256(neutron_rescaled_256(a, &layer->rescale, &layer->range, kind),
                                                  neutron_rescaled_256(b, &layer->rescale, &layer->range, kind),
                                                  &layer->range);
        neutron_store_8_256(out, stored, layer->channels);
        if (two) neutron_store_8_256(out + pitch, _mm_unpackhi_epi64(stored, stored), layer->channels);
    }
}

/* One row with a kernel of 3 by 3, whose columns stay in registers. */
NEUTRON_VECTOR_INLINE void compute_row_3x3(const Layer *layer, const Pair *pairs, uint8_t *out, ptrdiff_t out_pitch,
                                         const int stride) {
    const NeutronWindowExtents *w = &layer->call->window;
    const __m256i padding = _mm256_set1_epi16((short)layer->p->input_zero_point);
    const __m256i *weights = layer->weights;
    const uint32_t cols = (uint32_t)layer->input->cols;
    int32_t col = w->col0 * stride - layer->p->pad_left;
    const uint8_t *a = pairs[0].row[0] + col * pairs[0].pitch[0];
    const uint8_t *b = pairs[0].row[1] + col * pairs[0].pitch[1];
    const uint8_t *c = pairs[1].row[0] + col * pairs[1].pitch[0];
    __m256i upper[3] = {padding, padding, padding}, lower[3] = {padding, padding, padding};
    int fresh = 3; /* columns that the next output does not share with the last one */
    for (int32_t i = w->col0; i < w->col1; i++, fresh = stride) {
        NEUTRON_UNROLL
        for (int j = 0; j < 3; j++) {
            if (j + fresh < 3) {
                upper[j] = upper[j + stride];
                lower[j] = lower[j + stride];
                continue;
            }
            upper[j] = lower[j] = padding;
            if ((uint32_t)col < cols) {
                upper[j] = paired(neutron_bytes_128(a, 8), neutron_bytes_128(b, 8));
                lower[j] = paired(neutron_bytes_128(c, 8), _mm_setzero_si128());
            }
            col++;
            a += pairs[0].pitch[0];
            b += pairs[0].pitch[1];
            c += pairs[1].pitch[0];
        }
        __m256i sum = _mm256_madd_epi16(upper[0], weights[0]);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(upper[1], weights[1]));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(upper[2], weights[2]));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(lower[0], weights[3]));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(lower[1], weights[4]));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(lower[2], weights[5]));
        const __m256i y =
            neutron_rescaled_256(sum, &layer->rescale, &layer->range, NEUTRON_RESCALE_256_FROM_ZERO);
        _mm_storel_epi64((__m128i *)(void *)out, neutron_stored_256(y, y, &layer->range));
        out += out_pitch;
    }
}

/* One row of the window. */
NEUTRON_VECTOR static void run_row(const Layer *layer, int32_t n, int32_t row) {
    const NeutronDepthwiseConv2dS8 *p = layer->p;
    const NeutronWindowExtents *w = &layer->call->window;
    const NeutronBuffer *input = layer->input, *output = &layer->call->buffers[p->output];
    uint8_t padding[8];
    memset(padding, p->input_zero_point, sizeof padding);
    Pair pairs[KERNEL_ROWS / 2];
    for (int32_t i = 0; i < 2 * layer->shape.parts; i++) {
        const int32_t at = row * p->stride_h - p->pad_top + i * p->dilation_h;
        const bool inside = i < p->kernel_h && at >= 0 && at < input->rows;
        pairs[i / 2].row[i % 2] =
            inside ? neutron_element_address(layer->call->bases, input, n, at, 0, layer->channel) : padding;
        pairs[i / 2].pitch[i % 2] = inside ? input->col_pitch : 0;
    }
    uint8_t *out = neutron_element_address(layer->call->bases, output, n, row, w->col0, layer->channel);
    if (layer->shape.is_3x3 && layer->channels >= 8 && layer->kind == NEUTRON_RESCALE_256_FROM_ZERO) {
        if (p->stride_w == 1) {
            compute_row_3x3(layer, pairs, out, output->col_pitch, 1);
            return;
        }
        if (p->stride_w == 2) {
            compute_row_3x3(layer, pairs, out, output->col_pitch, 2);
            return;
        }
    }
    const int32_t per_pair = COLUMN_VECTORS / layer->shape.parts;
    __m256i columns[COLUMN_VECTORS];
    for (int32_t col = w->col0; col < w->col1;) {
        const int32_t outputs = w->col1 - col < layer->shape.stretch ? w->col1 - col : layer->shape.stretch;
        const int32_t first = col * p->stride_w - p->pad_left;
        const int32_t end = first + (outputs - 1) * p->stride_w + (p->kernel_w - 1) * p->dilation_w + 1;
        for (int32_t i = 0; i < layer->shape.parts; i++) {
            __m256i *const into = columns + (ptrdiff_t)i * per_pair;
            if (layer->channels >= 8) {
                load_columns(layer, into, &pairs[i], first, end, 8);
            } else {
                load_columns(layer, into, &pairs[i], first, end, (size_t)layer->channels);
            }
        }
        if (layer->kind == NEUTRON_RESCALE_256_FROM_ZERO) {
            compute_stretch(layer, columns, per_pair, outputs, out, output->col_pitch, NEUTRON_RESCALE_256_FROM_ZERO);
        } else {
            compute_stretch(layer, columns, per_pair, outputs, out, output->col_pitch, NEUTRON_RESCALE_256_ANY);
        }
        out += (ptrdiff_t)outputs * output->col_pitch;
        col += outputs;
    }
}

NEUTRON_VECTOR bool depthwise_conv_2d_s8_run_avx2(const NeutronKernelCall *call) {
    const NeutronDepthwiseConv2dS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    Layer layer;
    layer.call = call;
    layer.p = p;
    layer.input = &call->buffers[p->input];
    layer.range = neutron_range_256(p);
    if (!neutron_depthwise_fits(&layer.shape, call, 2, KERNEL_ROWS, WEIGHT_VECTORS, COLUMN_VECTORS)) return false;
    const size_t group_bytes = (size_t)p->kernel_h * (size_t)p->kernel_w * 8;
    for (int32_t k = w->channel0; k < w->channel1; k += 8) {
        const size_t group = (size_t)(k - p->constant_channel0) / 8;
        layer.channel = k;
        layer.channels = w->channel1 - k;
        layer.kind = neutron_prepare_groups_256(&layer.rescale, 1, p, neutron_requant_blocks(call, p) + group);
        prepare_weights(&layer, neutron_packed_weights(call, p) + group * group_bytes);
        NEUTRON_FOR_EACH_ROW(w, n, r) run_row(&layer, n, r);
    }
    return true;
}

#endif
