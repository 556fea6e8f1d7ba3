/* SPDX-License-Identifier: BSD-3-Clause */
/* depthwise_conv_2d_s8 for Helium: 8 channels of two outputs at a time. This takes every call.
 *
 * Taps outside the input are skipped: the zero point is subtracted from the inputs, and its product with the sum of the weights goes back
 * into the bias. Outputs all of whose taps are inside need neither. */
#include "conv_2d/convolution.h"

#if NEUTRON_HELIUM

/* The rows or columns [first, end) of a kernel that are inside the input. */
typedef struct {
    int32_t first, end;
} Range;

/* 8 channels of a batch. Channels past the last repeat it, and are not stored. */
typedef struct {
    const NeutronKernelCall *call;
    const NeutronDepthwiseConv2dS8 *p;
    const NeutronBuffer *input, *output;
    const NeutronRequantBlock *table;
    const int8_t *weights;
    const uint8_t *plane;         /* of the first channel */
    bool side_by_side;            /* the inputs of all 8, without a gap */
    int32_t apart[NEUTRON_LANES]; /* inputs, from the first channel's */
    NeutronEight bias, raised;    /* the latter for inputs without their zero point */
    NeutronScales scales;
    NeutronResults results;
} Block;

static Range inside(int32_t origin, int32_t kernel, int32_t dilation, int32_t extent) {
    Range taps = {0, kernel};
    if (origin < 0) taps.first = (dilation - 1 - origin) / dilation;
    if (extent - origin <= (kernel - 1) * dilation) {
        taps.end = extent > origin ? (extent - origin - 1) / dilation + 1 : 0;
    }
    if (taps.end < taps.first) taps.end = taps.first;
    return taps;
}

static NEUTRON_INLINE void add_products(NeutronEight *sum, int16x8_t a, int16x8_t b) {
    sum->val[0] = vaddq_s32(sum->val[0], vmullbq_int_s16(a, b));
    sum->val[1] = vaddq_s32(sum->val[1], vmulltq_int_s16(a, b));
}

static void prepare(Block *block, int32_t n, int32_t channel) {
    const NeutronDepthwiseConv2dS8 *p = block->p;
    const int32_t taps = p->kernel_h * p->kernel_w, left = block->call->window.channel1 - channel;
    const int32_t count = left < NEUTRON_LANES ? left : NEUTRON_LANES, first = channel / p->group_outputs;
    const size_t held = (size_t)(channel - p->constant_channel0) / NEUTRON_LANES;
    block->table = neutron_requant_blocks(block->call, p) + held;
    block->weights = neutron_packed_weights(block->call, p) + held * (size_t)taps * NEUTRON_LANES;
    block->plane = neutron_element_address(block->call->bases, block->input, n, 0, 0, first);
    block->side_by_side = p->group_outputs == 1 && count == NEUTRON_LANES && block->input->channel_pitch == 1;
    for (int32_t k = 0; k < NEUTRON_LANES; k++) {
        block->apart[k] = ((channel + (k < count ? k : count - 1)) / p->group_outputs - first) * block->input->channel_pitch;
    }
    neutron_prepare_scales(&block->scales, block->table->multiplier, block->table->shift);
    block->results = neutron_results_helium(p->output_zero_point, p->clamp_min, p->clamp_max, block->output->channel_pitch);
    block->results.lanes = neutron_lanes_helium(0, count);
    block->bias = block->raised = neutron_load_eight_words(block->table->bias);
    const int16x8_t zero_point = vdupq_n_s16((int16_t)p->input_zero_point);
    for (int32_t i = 0; i < taps; i++) {
        add_products(&block->raised, vldrbq_s16(block->weights + i * NEUTRON_LANES), zero_point);
    }
}

static int16x8_t load_apart(const Block *block, const uint8_t *from) {
    int8_t inputs[NEUTRON_LANES];
    for (int32_t k = 0; k < NEUTRON_LANES; k++) inputs[k] = (int8_t)from[block->apart[k]];
    return vldrbq_s16(inputs);
}

/* An output, where the first of its taps that are inside begins, and that tap's row in the ring. A second output is `in_apart` and
 * `out_apart` bytes away. So many times; each time the outputs are `in` and `out` bytes further. */
typedef struct {
    const uint8_t *from;
    uint8_t *to;
    int32_t line, times;
    ptrdiff_t in_apart, out_apart, in, out;
} Outputs;

static __attribute__((noinline)) void store_once(const Block *block, uint8_t *to, NeutronEight sum) {
    for (int32_t i = 0; i < 2; i++) {
        int32_t sums[NEUTRON_LANES / 2];
        vstrwq_s32(sums, sum.val[i]);
        for (int32_t k = 0; k < NEUTRON_LANES / 2; k++) {
            const int32_t multiplier = neutron_sound_multiplier(block->table->multiplier[2 * k + i]);
            sums[k] = neutron_rounded_once(sums[k], multiplier, block->table->shift[2 * k + i]);
        }
        sum.val[i] = vldrwq_s32(sums);
    }
    neutron_store_eight_helium(to, &block->results, sum);
}

static NEUTRON_INLINE void store(const Block *block, uint8_t *to, ptrdiff_t apart, NeutronEight sum, NeutronEight sum_two, const int count) {
    if (block->p->single_rounding != 0) {
        store_once(block, to, sum);
        if (count == 2) store_once(block, to + apart, sum_two);
        return;
    }
    if (block->scales.shifts_left) {
        neutron_shift_left_eight(&sum, &block->scales);
        if (count == 2) neutron_shift_left_eight(&sum_two, &block->scales);
    }
    neutron_requantize_eight(&sum, &block->scales);
    if (count == 2) neutron_requantize_eight(&sum_two, &block->scales);
    neutron_store_eight_helium(to, &block->results, sum);
    if (count == 2) neutron_store_eight_helium(to + apart, &block->results, sum_two);
}

/* Outputs, `count` at a time, that have these taps inside. `all`: all taps. The rows of two outputs do not come to the ring's end. */
static NEUTRON_INLINE void compute(const Block *block, Range rows, Range cols, const Outputs *outputs, const int count, const bool all) {
    const NeutronDepthwiseConv2dS8 *p = block->p;
    const NeutronBuffer *input = block->input;
    const ptrdiff_t step = (ptrdiff_t)p->dilation_w * input->col_pitch, down = (ptrdiff_t)p->dilation_h * input->row_pitch;
    const ptrdiff_t round = (ptrdiff_t)input->ring * input->row_pitch, apart = outputs->in_apart;
    const int32_t width = cols.end - cols.first, skipped = (p->kernel_w - width) * NEUTRON_LANES, height = rows.end - rows.first;
    const int16_t zero_point = (int16_t)p->input_zero_point;
    const int8_t *const first = block->weights + (ptrdiff_t)(rows.first * p->kernel_w + cols.first) * NEUTRON_LANES;
    const uint8_t *next = outputs->from;
    uint8_t *to = outputs->to;
    for (int32_t times = outputs->times; times > 0; times--, next += outputs->in, to += outputs->out) {
        const uint8_t *from = next;
        int32_t line = outputs->line;
        const int8_t *weights = first;
        NeutronEight sum = all ? block->bias : block->raised, sum_two = sum;
        for (int32_t i = width > 0 ? height : 0; i > 0; i--, weights += skipped) {
            const uint8_t *at = from, *other = from + apart;
            for (int32_t j = width; j > 0; j--, weights += NEUTRON_LANES) {
                const int16x8_t w = vldrbq_s16(weights);
                int16x8_t x = count == 2 || block->side_by_side ? vldrbq_s16((const int8_t *)at) : load_apart(block, at);
                add_products(&sum, all ? x : vsubq_n_s16(x, zero_point), w);
                at += step;
                if (count == 1) continue;
                x = vldrbq_s16((const int8_t *)other);
                add_products(&sum_two, all ? x : vsubq_n_s16(x, zero_point), w);
                other += step;
            }
            from += down;
            if (count == 2) continue;
            for (line += p->dilation_h; line >= input->ring; line -= input->ring) from -= round;
        }
        store(block, to, outputs->out_apart, sum, sum_two, count);
    }
}

static __attribute__((noinline)) void compute_one(const Block *block, Range rows, Range cols, const Outputs *outputs) {
    compute(block, rows, cols, outputs, 1, false);
}

static __attribute__((noinline)) void compute_two(const Block *block, Range rows, Range cols, const Outputs *outputs) {
    compute(block, rows, cols, outputs, 2, false);
}

static __attribute__((noinline)) void compute_two_inside(const Block *block, Range rows, Range cols, const Outputs *outputs) {
    compute(block, rows, cols, outputs, 2, true);
}

/* Outputs of row r, and where `below` of the next one too. Rows are those of their taps that are inside. */
static void compute_row(const Block *block, int32_t n, int32_t r, int32_t channel, Range rows, bool below) {
    const NeutronDepthwiseConv2dS8 *p = block->p;
    const NeutronBuffer *input = block->input, *output = block->output;
    const NeutronWindowExtents *w = &block->call->window;
    const int32_t row = r * p->stride_h - p->pad_top + rows.first * p->dilation_h;
    const int32_t last = input->cols - (p->kernel_w - 1) * p->dilation_w; /* past the last column without padding */
    const int32_t height = rows.end - rows.first, line = height > 0 ? row % input->ring : 0;
    const bool turns = line + (height - 1) * p->dilation_h >= input->ring;
    const bool whole = height == p->kernel_h;
    const ptrdiff_t in = (ptrdiff_t)p->stride_w * input->col_pitch;
    uint8_t *out = neutron_element_address(block->call->bases, output, n, r, w->col0, channel);
    const ptrdiff_t to_below = below ? neutron_element_address(block->call->bases, output, n, r + 1, w->col0, channel) - out : 0;
    for (int32_t c = w->col0, columns; c < w->col1; c += columns, out += (ptrdiff_t)columns * output->col_pitch) {
        const int32_t col = c * p->stride_w - p->pad_left;
        const bool is_inside = col >= 0 && col < last;
        Range cols = {0, p->kernel_w};
        columns = 1;
        if (is_inside) {
            columns = (last - 1 - col) / p->stride_w + 1;
            if (columns > w->col1 - c) columns = w->col1 - c;
        } else {
            cols = inside(col, p->kernel_w, p->dilation_w, input->cols);
        }
        Outputs outputs = {.to = out, .line = line, .times = columns, .in = in, .out = output->col_pitch};
        outputs.from = block->plane + (ptrdiff_t)(col + cols.first * p->dilation_w) * input->col_pitch + (ptrdiff_t)line * input->row_pitch;
        bool two = below;
        if (below) {
            outputs.in_apart = (ptrdiff_t)p->stride_h * input->row_pitch;
            outputs.out_apart = to_below;
        } else if (block->side_by_side && columns > 1 && !turns) {
            columns &= -2;
            outputs.times = columns / 2;
            outputs.in_apart = in;
            outputs.out_apart = output->col_pitch;
            outputs.in = 2 * in;
            outputs.out = 2 * (ptrdiff_t)output->col_pitch;
            two = true;
        }
        if (!two) {
            compute_one(block, rows, cols, &outputs);
        } else if (whole && is_inside) {
            compute_two_inside(block, rows, cols, &outputs);
        } else {
            compute_two(block, rows, cols, &outputs);
        }
    }
}

static void compute_rows(const Block *block, int32_t n, int32_t channel) {
    const NeutronDepthwiseConv2dS8 *p = block->p;
    const NeutronWindowExtents *w = &block->call->window;
    const int32_t rows = block->input->rows, last = rows - (p->kernel_h - 1) * p->dilation_h;
    for (int32_t r = w->row0; r < w->row1; r++) {
        const int32_t row = r * p->stride_h - p->pad_top;
        const bool below = block->side_by_side && row >= 0 && row < last - p->stride_h && r + 1 < w->row1 &&
                           row % block->input->ring + p->stride_h + (p->kernel_h - 1) * p->dilation_h < block->input->ring;
        compute_row(block, n, r, channel, inside(row, p->kernel_h, p->dilation_h, rows), below);
        r += below;
    }
}

void depthwise_conv_2d_s8_run(const NeutronKernelCall *call) {
    const NeutronDepthwiseConv2dS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    Block block = {.call = call, .p = p, .input = &call->buffers[p->input], .output = &call->buffers[p->output]};
    for (int32_t n = w->batch0; n < w->batch1; n++) {
        for (int32_t k = w->channel0; k < w->channel1; k += NEUTRON_LANES) {
            prepare(&block, n, k);
            compute_rows(&block, n, k);
        }
    }
}

#endif
