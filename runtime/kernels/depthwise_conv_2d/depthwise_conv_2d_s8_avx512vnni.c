/* SPDX-License-Identifier: BSD-3-Clause */
/* depthwise_conv_2d_s8 for AVX-512 VNNI: 16 channels at a time, depth multiplier 1.
 *
 * Four kernel rows make one vpdpbusd: a column of the input is one vector, whose lane k has the bytes of channel k in the
 * four rows that the taps look at. An output is the sum over the kernel's columns of such vectors times vectors of
 * weights in the same order; neighbouring outputs share columns. */
#include "conv_2d/avx512vnni.h"

#if NEUTRON_X86_VARIANTS

enum {
    BLOCKS = 8,          /* of 16 channels, made ready at a time */
    WEIGHT_VECTORS = 96, /* of all of them */
    COLUMN_VECTORS = 64, /* of a stretch of a row */
    KERNEL_ROWS = 32
};

typedef struct {
    __m512i start;
    NeutronRescale512 even, odd; /* channels */
} Block;

typedef struct {
    const NeutronKernelCall *call;
    const NeutronDepthwiseConv2dS8 *p;
    const NeutronBuffer *input;
    NeutronRange512 range;
    NeutronDepthwiseShape shape; /* parts: quads of kernel rows */
    size_t vectors; /* of weights, for a block: [quad][kernel_w] */
    NeutronRescaleKind512 kind;
} Layer;

/* 16 channels' bytes, the last of which `mask` may leave out, in 16 lanes. */
NEUTRON_AVX512VNNI_INLINE __m512i load_channels(const uint8_t *at, __mmask16 mask, bool masked) {
    const __m128i bytes =
        masked ? _mm_maskz_loadu_epi8(mask, at) : _mm_loadu_si128((const __m128i *)(const void *)at);
    return _mm512_cvtepu8_epi32(bytes);
}

NEUTRON_AVX512VNNI_INLINE __m512i interleaved(__m512i a, __m512i b, __m512i c, __m512i d) {
    const __m512i low = _mm512_or_si512(a, _mm512_slli_epi32(b, 8));
    return _mm512_ternarylogic_epi32(low, _mm512_slli_epi32(c, 16), _mm512_slli_epi32(d, 24), 0xFE);
}

/* ---- constants ------------------------------------------------------------------------------------------------------ */

/* Weights of one tap for 16 channels in 16 lanes; the second 8 may be absent. */
NEUTRON_AVX512VNNI_INLINE __m512i load_tap(const int8_t *weights, size_t group_bytes, bool second) {
    const __m128i low = _mm_loadl_epi64((const __m128i *)(const void *)weights);
    const __m128i high =
        second ? _mm_loadl_epi64((const __m128i *)(const void *)(weights + group_bytes)) : _mm_setzero_si128();
    return _mm512_cvtepu8_epi32(_mm_unpacklo_epi64(low, high));
}

/* True where all channels' right shifts fit. */
NEUTRON_AVX512VNNI static bool prepare_block(const Layer *layer, Block *block, __m512i *vectors, const int8_t *weights,
                                             const NeutronRequantBlock *table, bool second) {
    const NeutronDepthwiseConv2dS8 *p = layer->p;
    const size_t row_bytes = (size_t)p->kernel_w * 8, group_bytes = (size_t)p->kernel_h * row_bytes;
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i sum = _mm512_setzero_si512();
    for (int32_t quad = 0; quad < layer->shape.parts; quad++) {
        const int32_t rows = p->kernel_h - 4 * quad;
        for (int32_t j = 0; j < p->kernel_w; j++) {
            const int8_t *at = weights + (size_t)quad * 4 * row_bytes + (size_t)j * 8;
            const __m512i a = load_tap(at, group_bytes, second);
            const __m512i b = rows > 1 ? load_tap(at + row_bytes, group_bytes, second) : _mm512_setzero_si512();
            const __m512i c = rows > 2 ? load_tap(at + 2 * row_bytes, group_bytes, second) : _mm512_setzero_si512();
            const __m512i d = rows > 3 ? load_tap(at + 3 * row_bytes, group_bytes, second) : _mm512_setzero_si512();
            *vectors = interleaved(a, b, c, d);
            sum = _mm512_dpbusd_epi32(sum, ones, *vectors++);
        }
    }
    const __m256i zero = _mm256_setzero_si256();
    const __m512i bias = _mm512_inserti64x4(_mm512_castsi256_si512(neutron_words_256(table[0].bias)),
                                            second ? neutron_words_256(table[1].bias) : zero, 1);
    const __m512i multiplier = _mm512_inserti64x4(_mm512_castsi256_si512(neutron_words_256(table[0].multiplier)),
                                                  second ? neutron_words_256(table[1].multiplier) : zero, 1);
    const __m512i shift = _mm512_inserti64x4(_mm512_castsi256_si512(neutron_words_256(table[0].shift)),
                                             second ? neutron_words_256(table[1].shift) : zero, 1);
    block->start = _mm512_sub_epi32(bias, _mm512_slli_epi32(sum, 7));
    block->even = neutron_rescale_512(_mm512_cvtepi64_epi32(multiplier), _mm512_cvtepi64_epi32(shift), false);
    block->odd = neutron_rescale_512(_mm512_cvtepi64_epi32(_mm512_srli_epi64(multiplier, 32)),
                                     _mm512_cvtepi64_epi32(_mm512_srli_epi64(shift, 32)), false);
    return neutron_right_fits_512(&block->even) && neutron_right_fits_512(&block->odd);
}

/* ---- columns -------------------------------------------------------------------------------------------------------- */

/* Four rows of the input at column 0; those outside it, and those past the kernel, are 16 bytes again and again. */
typedef struct {
    const uint8_t *row[4];
    ptrdiff_t pitch[4];
} Quad;

NEUTRON_AVX512VNNI_INLINE __m512i load_column(const Quad *quad, int32_t col, __mmask16 mask, bool masked, int rows) {
    const __m512i zero = _mm512_setzero_si512();
    const __m512i a = load_channels(quad->row[0] + col * quad->pitch[0], mask, masked);
    const __m512i b = rows > 1 ? load_channels(quad->row[1] + col * quad->pitch[1], mask, masked) : zero;
    const __m512i c = rows > 2 ? load_channels(quad->row[2] + col * quad->pitch[2], mask, masked) : zero;
    const __m512i d = rows > 3 ? load_channels(quad->row[3] + col * quad->pitch[3], mask, masked) : zero;
    return _mm512_xor_si512(interleaved(a, b, c, d), _mm512_set1_epi8(-128));
}

/* Columns [first, end) of the input, padding included. */
NEUTRON_AVX512VNNI_INLINE void load_columns(const Layer *layer, __m512i *columns, const Quad *quad, int32_t first,
                                            int32_t end, __mmask16 mask, bool masked, int rows) {
    const __m512i padding = _mm512_set1_epi8((char)(layer->p->input_zero_point ^ -128));
    int32_t col = first;
    for (; col < end && col < 0; col++) *columns++ = padding;
    const int32_t inside = end < layer->input->cols ? end : layer->input->cols;
    for (; col < inside; col++) *columns++ = load_column(quad, col, mask, masked, rows);
    for (; col < end; col++) *columns++ = padding;
}

NEUTRON_AVX512VNNI static void load_stretch(const Layer *layer, __m512i *columns, int32_t per_quad, const Quad *quads,
                                            int32_t first, int32_t end, __mmask16 mask) {
    for (int32_t q = 0; q < layer->shape.parts; q++, columns += per_quad) {
        const int32_t rows = layer->p->kernel_h - 4 * q;
        if (mask != 0xFFFF) {
            load_columns(layer, columns, quads + q, first, end, mask, true, 4);
        } else if (rows == 3) {
            load_columns(layer, columns, quads + q, first, end, mask, false, 3);
        } else if (rows == 1) {
            load_columns(layer, columns, quads + q, first, end, mask, false, 1);
        } else {
            load_columns(layer, columns, quads + q, first, end, mask, false, 4);
        }
    }
}

/* ---- outputs -------------------------------------------------------------------------------------------------------- */

NEUTRON_AVX512VNNI_INLINE void store_output(const Layer *layer, const Block *block, __m512i sum, uint8_t *out,
                                            __mmask16 mask, const NeutronRescaleKind512 kind) {
    const __m512i even = neutron_rescaled_512(sum, &block->even, kind);
    const __m512i odd = neutron_rescaled_512(_mm512_srli_epi64(sum, 32), &block->odd, kind);
    const __m512i both = _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, _MM_PERM_CCAA);
    const __m128i stored = neutron_stored_512(both, &layer->range, kind);
    if (mask == 0xFFFF) {
        _mm_storeu_si128((__m128i *)(void *)out, stored);
    } else {
        _mm_mask_storeu_epi8(out, mask, stored);
    }
}

NEUTRON_AVX512VNNI_INLINE void compute_stretch(const Layer *layer, const Block *block, const __m512i *vectors,
                                               const __m512i *columns, int32_t per_quad, int32_t outputs, uint8_t *out,
                                               ptrdiff_t out_pitch, __mmask16 mask, const NeutronRescaleKind512 kind) {
    const NeutronDepthwiseConv2dS8 *p = layer->p;
    for (int32_t c = 0; c < outputs; c++, columns += p->stride_w, out += out_pitch) {
        __m512i sum = block->start;
        const __m512i *w = vectors;
        for (int32_t q = 0; q < layer->shape.parts; q++) {
            const __m512i *column = columns + (ptrdiff_t)q * per_quad;
            for (int32_t j = 0; j < p->kernel_w; j++, column += p->dilation_w) {
                sum = _mm512_dpbusd_epi32(sum, *column, *w++);
            }
        }
        store_output(layer, block, sum, out, mask, kind);
    }
}

/* Outputs [first, end) of a row with a kernel of 3 by 3, whose columns stay in registers. out: of column 0. */
NEUTRON_AVX512VNNI_INLINE void compute_row_3x3(const Layer *layer, const Block *block, const __m512i *vectors,
                                               const Quad *quad, uint8_t *out, ptrdiff_t out_pitch, const int stride,
                                               const NeutronRescaleKind512 kind) {
    const NeutronWindowExtents *w = &layer->call->window;
    const __m512i padding = _mm512_set1_epi8((char)(layer->p->input_zero_point ^ -128));
    const __m512i flip = _mm512_set1_epi8(-128);
    const uint32_t cols = (uint32_t)layer->input->cols;
    int32_t col = w->col0 * stride - layer->p->pad_left;
    const uint8_t *a = quad->row[0] + col * quad->pitch[0];
    const uint8_t *b = quad->row[1] + col * quad->pitch[1];
    const uint8_t *c = quad->row[2] + col * quad->pitch[2];
    __m512i columns[3] = {padding, padding, padding};
    int fresh = 3; /* columns that the next output does not share with the last one */
    for (int32_t i = w->col0; i < w->col1; i++, fresh = stride) {
        NEUTRON_UNROLL
        for (int j = 0; j < 3; j++) {
            if (j + fresh < 3) {
                columns[j] = columns[j + stride];
                continue;
            }
            columns[j] = padding;
            if ((uint32_t)col < cols) {
                const __m512i rows = _mm512_ternarylogic_epi32(load_channels(a, 0, false),
                                                               _mm512_slli_epi32(load_channels(b, 0, false), 8),
                                                               _mm512_slli_epi32(load_channels(c, 0, false), 16), 0xFE);
                columns[j] = _mm512_xor_si512(rows, flip);
            }
            col++;
            a += quad->pitch[0];
            b += quad->pitch[1];
            c += quad->pitch[2];
        }
        __m512i sum = _mm512_dpbusd_epi32(block->start, columns[0], vectors[0]);
        sum = _mm512_dpbusd_epi32(sum, columns[1], vectors[1]);
        sum = _mm512_dpbusd_epi32(sum, columns[2], vectors[2]);
        store_output(layer, block, sum, out, 0xFFFF, kind);
        out += out_pitch;
    }
}

NEUTRON_AVX512VNNI static bool run_row_3x3(const Layer *layer, const Block *block, const __m512i *vectors,
                                           const Quad *quad, uint8_t *out, ptrdiff_t out_pitch) {
    const NeutronRescaleKind512 from_zero = NEUTRON_RESCALE_512_FROM_ZERO, right = NEUTRON_RESCALE_512_RIGHT;
    const int32_t stride = layer->p->stride_w;
    if (stride == 1 && layer->kind == from_zero) {
        compute_row_3x3(layer, block, vectors, quad, out, out_pitch, 1, from_zero);
    } else if (stride == 2 && layer->kind == from_zero) {
        compute_row_3x3(layer, block, vectors, quad, out, out_pitch, 2, from_zero);
    } else if (stride == 1 && layer->kind == right) {
        compute_row_3x3(layer, block, vectors, quad, out, out_pitch, 1, right);
    } else if (stride == 2 && layer->kind == right) {
        compute_row_3x3(layer, block, vectors, quad, out, out_pitch, 2, right);
    } else {
        return false;
    }
    return true;
}

/* One row of the window for the channels of one block. */
NEUTRON_AVX512VNNI static void run_row(const Layer *layer, const Block *block, const __m512i *vectors, int32_t n,
                                       int32_t row, int32_t channel, int32_t channels) {
    const NeutronDepthwiseConv2dS8 *p = layer->p;
    const NeutronWindowExtents *w = &layer->call->window;
    const NeutronBuffer *input = layer->input, *output = &layer->call->buffers[p->output];
    const __mmask16 mask = (__mmask16)(channels >= 16 ? 0xFFFFu : (1u << channels) - 1);
    uint8_t padding[16];
    memset(padding, p->input_zero_point, sizeof padding);
    Quad quads[KERNEL_ROWS / 4];
    for (int32_t i = 0; i < 4 * layer->shape.parts; i++) {
        const int32_t at = row * p->stride_h - p->pad_top + i * p->dilation_h;
        const bool inside = i < p->kernel_h && at >= 0 && at < input->rows;
        quads[i / 4].row[i % 4] =
            inside ? neutron_element_address(layer->call->bases, input, n, at, 0, channel) : padding;
        quads[i / 4].pitch[i % 4] = inside ? input->col_pitch : 0;
    }
    uint8_t *out = neutron_element_address(layer->call->bases, output, n, row, w->col0, channel);
    if (layer->shape.is_3x3 && mask == 0xFFFF && run_row_3x3(layer, block, vectors, quads, out, output->col_pitch)) return;
    const int32_t per_quad = COLUMN_VECTORS / layer->shape.parts;
    __m512i columns[COLUMN_VECTORS];
    for (int32_t col = w->col0; col < w->col1;) {
        const int32_t outputs = w->col1 - col < layer->shape.stretch ? w->col1 - col : layer->shape.stretch;
        const int32_t first = col * p->stride_w - p->pad_left;
        const int32_t end = first + (outputs - 1) * p->stride_w + (p->kernel_w - 1) * p->dilation_w + 1;
        load_stretch(layer, columns, per_quad, quads, first, end, mask);
        const ptrdiff_t pitch = output->col_pitch;
        if (layer->kind == NEUTRON_RESCALE_512_FROM_ZERO) {
            compute_stretch(layer, block, vectors, columns, per_quad, outputs, out, pitch, mask,
                            NEUTRON_RESCALE_512_FROM_ZERO);
        } else if (layer->kind == NEUTRON_RESCALE_512_RIGHT) {
            compute_stretch(layer, block, vectors, columns, per_quad, outputs, out, pitch, mask,
                            NEUTRON_RESCALE_512_RIGHT);
        } else {
            compute_stretch(layer, block, vectors, columns, per_quad, outputs, out, pitch, mask,
                            NEUTRON_RESCALE_512_ANY);
        }
        out += (ptrdiff_t)outputs * pitch;
        col += outputs;
    }
}

NEUTRON_AVX512VNNI bool depthwise_conv_2d_s8_run_avx512vnni(const NeutronKernelCall *call) {
    const NeutronDepthwiseConv2dS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    Layer layer = {.call = call, .p = p, .input = &call->buffers[p->input], .range = neutron_range_512(p)};
    if (!neutron_depthwise_fits(&layer.shape, call, 4, KERNEL_ROWS, WEIGHT_VECTORS, COLUMN_VECTORS)) return false;
    layer.vectors = (size_t)p->kernel_w * (size_t)layer.shape.parts;
    const size_t group_bytes = (size_t)p->kernel_h * (size_t)p->kernel_w * 8;
    const int32_t at_once = (int32_t)(WEIGHT_VECTORS / layer.vectors < BLOCKS ? WEIGHT_VECTORS / layer.vectors : BLOCKS);
    Block blocks[BLOCKS];
    __m512i vectors[WEIGHT_VECTORS];
    for (int32_t k = w->channel0; k < w->channel1; k += 16 * at_once) {
        const int32_t end = w->channel1 - k < 16 * at_once ? w->channel1 : k + 16 * at_once;
        bool fits_all = true;
        for (int32_t at = k, b = 0; at < end; at += 16, b++) {
            const size_t group = (size_t)(at - p->constant_channel0) / 8;
            fits_all &= prepare_block(&layer, &blocks[b], vectors + (size_t)b * layer.vectors,
                                      neutron_packed_weights(call, p) + group * group_bytes,
                                      neutron_requant_blocks(call, p) + group, end - at > 8);
        }
        layer.kind = neutron_rescale_kind_512(p, fits_all);
        for (int32_t at = k, b = 0; at < end && layer.kind != NEUTRON_RESCALE_512_ANY; at += 16, b++) {
            neutron_add_zero_point_512(&blocks[b].even, p->output_zero_point);
            neutron_add_zero_point_512(&blocks[b].odd, p->output_zero_point);
        }
        NEUTRON_FOR_EACH_ROW(w, n, r) {
            for (int32_t at = k, b = 0; at < end; at += 16, b++) {
                run_row(&layer, &blocks[b], vectors + (size_t)b * layer.vectors, n, r, at, end - at);
            }
        }
    }
    return true;
}

#endif
