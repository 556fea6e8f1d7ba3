/* SPDX-License-Identifier: BSD-3-Clause */
/* depthwise_conv_2d_s8 for NEON: 8 channels of 4 outputs of a row at a time, depth multiplier 1. Bytes are widened to 16 bits; where the
 * kernel has 3 columns, the outputs of a tile share the input's columns. */
#include "conv_2d/neon.h"

#if NEUTRON_NEON_VARIANTS

enum { KERNEL_ROWS = 32, TAPS = 128, TILE = 4 };

/* A row of the input at column 0; one outside the input is 8 bytes again and again. */
typedef struct {
    const uint8_t *at;
    ptrdiff_t pitch;
} Row;

typedef struct {
    const NeutronKernelCall *call;
    const NeutronDepthwiseConv2dS8 *p;
    const NeutronBuffer *input;
    NeutronRangeNeon range;
    NeutronRescaleNeon rescale;
    NeutronRescaleKind kind;
    int32_t channel, channels; /* of the block, of which at most 8 are computed */
    Row rows[KERNEL_ROWS];
    int16x8_t weights[TAPS];
} Layer;

/* What a compiler is to know of a tile. edge: columns may be outside the input. kernel_w, stride: 0 where any. */
typedef struct {
    int outputs, kernel_w, stride;
    bool edge, whole;
} Shape;

/* Column `col` of the input, which is at `at`. */
static NEUTRON_INLINE int16x8_t load_column(const Layer *layer, const uint8_t *at, int32_t col, const Shape shape) {
    if (shape.edge && (uint32_t)col >= (uint32_t)layer->input->cols) {
        return vdupq_n_s16((int16_t)layer->p->input_zero_point);
    }
    return vmovl_s8(vcreate_s8(neutron_load_eight(at, shape.whole ? 8 : layer->channels)));
}

static NEUTRON_INLINE void add_tap(int32x4_t *sums, int16x8_t weights, int16x8_t column) {
    sums[0] = vmlal_s16(sums[0], vget_low_s16(weights), vget_low_s16(column));
    sums[1] = vmlal_high_s16(sums[1], weights, column);
}

/* Adds a row of taps. col: the input column of the tile's first tap. */
static NEUTRON_INLINE void add_row(int32x4_t sums[TILE][2], const Layer *layer, const Row *row, const int16x8_t *weights,
                                   int32_t col, const Shape shape) {
    if (shape.kernel_w == 3) {
        int16x8_t columns[2 * (TILE - 1) + 3];
        const uint8_t *at = row->at + col * row->pitch;
        NEUTRON_UNROLL
        for (int c = 0; c < (shape.outputs - 1) * shape.stride + 3; c++, at += row->pitch) {
            columns[c] = load_column(layer, at, col + c, shape);
        }
        NEUTRON_UNROLL
        for (int j = 0; j < 3; j++) {
            NEUTRON_UNROLL
            for (int t = 0; t < shape.outputs; t++) add_tap(sums[t], weights[j], columns[t * shape.stride + j]);
        }
        return;
    }
    const NeutronDepthwiseConv2dS8 *p = layer->p;
    for (int32_t j = 0; j < p->kernel_w; j++, col += p->dilation_w) {
        NEUTRON_UNROLL
        for (int t = 0; t < shape.outputs; t++) {
            const int32_t c = col + t * p->stride_w;
            add_tap(sums[t], weights[j], load_column(layer, row->at + c * row->pitch, c, shape));
        }
    }
}

static NEUTRON_INLINE void store(const Layer *layer, int32x4_t sums[TILE][2], uint8_t *out, ptrdiff_t pitch,
                                 const Shape shape, const NeutronRescaleKind kind) {
    NEUTRON_UNROLL
    for (int t = 0; t < shape.outputs; t++) {
        NEUTRON_UNROLL
        for (int half = 0; half < 2; half++) {
            sums[t][half] = neutron_rescaled_neon(sums[t][half], &layer->rescale, half, kind);
        }
    }
    NEUTRON_UNROLL
    for (int t = 0; t < shape.outputs; t += 2) {
        const bool two = t + 1 < shape.outputs;
        const uint64x2_t bytes = vreinterpretq_u64_s8(neutron_stored_neon(sums[t], sums[two ? t + 1 : t], &layer->range));
        neutron_store_eight(out, vgetq_lane_u64(bytes, 0), shape.whole ? 8 : layer->channels);
        out += pitch;
        if (two) neutron_store_eight(out, vgetq_lane_u64(bytes, 1), shape.whole ? 8 : layer->channels);
        out += pitch;
    }
}

static NEUTRON_INLINE void compute_tile(const Layer *layer, int32_t col, uint8_t *out, ptrdiff_t pitch, const Shape shape) {
    const int32_t kernel_w = shape.kernel_w != 0 ? shape.kernel_w : layer->p->kernel_w;
    int32x4_t sums[TILE][2];
    NEUTRON_UNROLL
    for (int t = 0; t < shape.outputs; t++) {
        sums[t][0] = layer->rescale.bias[0];
        sums[t][1] = layer->rescale.bias[1];
    }
    const int16x8_t *weights = layer->weights;
    for (int32_t i = 0; i < layer->p->kernel_h; i++, weights += kernel_w) {
        add_row(sums, layer, &layer->rows[i], weights, col, shape);
    }
    if (layer->kind == NEUTRON_RESCALE_FROM_ZERO) {
        store(layer, sums, out, pitch, shape, NEUTRON_RESCALE_FROM_ZERO);
    } else {
        store(layer, sums, out, pitch, shape, NEUTRON_RESCALE_ANY);
    }
}

/* A row of the window, in tiles. The last tile begins among the outputs of the one before it where that saves smaller tiles. */
static NEUTRON_INLINE void compute_row(const Layer *layer, uint8_t *out, ptrdiff_t pitch, const int kernel_w,
                                       const int stride, const bool whole) {
    const NeutronDepthwiseConv2dS8 *p = layer->p;
    const NeutronWindowExtents *w = &layer->call->window;
    const int32_t span = (p->kernel_w - 1) * p->dilation_w, length = w->col1 - w->col0;
    for (int32_t done = 0, outputs; done < length; done += outputs) {
        const int32_t left = length - done;
        outputs = left > 1 && length >= TILE ? TILE : 1;
        const int32_t at = outputs == TILE && left < TILE ? length - TILE : done;
        const int32_t col = (w->col0 + at) * p->stride_w - p->pad_left;
        const bool edge = col < 0 || col + (outputs - 1) * p->stride_w + span >= layer->input->cols;
        uint8_t *to = out + at * pitch;
        if (outputs == 1) {
            compute_tile(layer, col, to, pitch, (Shape){1, kernel_w, stride, true, whole});
        } else if (edge) {
            compute_tile(layer, col, to, pitch, (Shape){TILE, kernel_w, stride, true, whole});
        } else {
            compute_tile(layer, col, to, pitch, (Shape){TILE, kernel_w, stride, false, whole});
        }
    }
}

/* Row r of a plane, which may be a ring of rows. */
static NEUTRON_INLINE ptrdiff_t row_offset(const NeutronBuffer *buffer, int32_t r) {
    return (ptrdiff_t)(buffer->ring == buffer->rows ? r : r % buffer->ring) * buffer->row_pitch;
}

/* plane, out: row 0 of the block's channels in the input at column 0, and in the output at the window's first column. */
static void run_row(Layer *layer, const uint8_t *plane, uint8_t *out, int32_t r, const uint8_t *padding) {
    const NeutronDepthwiseConv2dS8 *p = layer->p;
    const NeutronBuffer *input = layer->input, *output = &layer->call->buffers[p->output];
    for (int32_t i = 0; i < p->kernel_h; i++) {
        const int32_t row = r * p->stride_h - p->pad_top + i * p->dilation_h;
        const bool inside = row >= 0 && row < input->rows;
        layer->rows[i].at = inside ? plane + row_offset(input, row) : padding;
        layer->rows[i].pitch = inside ? input->col_pitch : 0;
    }
    out += row_offset(output, r);
    const bool three = p->kernel_w == 3 && p->dilation_w == 1 && layer->channels >= 8;
    if (three && p->stride_w == 1) {
        compute_row(layer, out, output->col_pitch, 3, 1, true);
    } else if (three && p->stride_w == 2) {
        compute_row(layer, out, output->col_pitch, 3, 2, true);
    } else {
        compute_row(layer, out, output->col_pitch, 0, 0, false);
    }
}

bool depthwise_conv_2d_s8_run_neon(const NeutronKernelCall *call) {
    const NeutronDepthwiseConv2dS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *input = &call->buffers[p->input];
    const int64_t taps = (int64_t)p->kernel_h * p->kernel_w;
    if (p->group_outputs != 1 || p->single_rounding != 0 || input->channel_pitch != 1 ||
        call->buffers[p->output].channel_pitch != 1 || p->kernel_h > KERNEL_ROWS || taps > TAPS) {
        return false;
    }
    Layer layer;
    layer.call = call;
    layer.p = p;
    layer.input = input;
    layer.range = neutron_range_neon(p);
    uint8_t padding[8];
    memset(padding, p->input_zero_point, sizeof padding);
    for (int32_t k = w->channel0; k < w->channel1; k += NEUTRON_LANES) {
        const size_t block = (size_t)(k - p->constant_channel0) / NEUTRON_LANES;
        const int8_t *weights = neutron_packed_weights(call, p) + block * (size_t)taps * NEUTRON_LANES;
        layer.channel = k;
        layer.channels = w->channel1 - k;
        layer.rescale = neutron_rescale_neon(neutron_requant_blocks(call, p) + block);
        layer.kind = neutron_rescale_kind(p, &layer.rescale);
        for (int32_t i = 0; i < taps; i++) layer.weights[i] = vmovl_s8(vld1_s8(weights + i * NEUTRON_LANES));
        for (int32_t n = w->batch0; n < w->batch1; n++) {
            const uint8_t *plane = neutron_element_address(call->bases, input, n, 0, 0, k);
            uint8_t *out = neutron_element_address(call->bases, &call->buffers[p->output], n, 0, w->col0, k);
            for (int32_t r = w->row0; r < w->row1; r++) run_row(&layer, plane, out, r, padding);
        }
    }
    return true;
}

#endif
