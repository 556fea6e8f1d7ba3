/* SPDX-License-Identifier: BSD-3-Clause */
/* depthwise_conv_2d_s8 for Helium: 8 channels of two outputs at a time. This takes every call.
 *
 * The inputs of some outputs are copied to a strip: 16 channels of each element, with padding where a tap is outside the input, and wherever
 * the channels lie. All outputs then take the same way. Kernels whose taps do not fit into a strip are left to the portable code. */
#include "conv_2d/convolution.h"

#if NEUTRON_HELIUM

enum {
    CHANNELS = 2 * NEUTRON_LANES, /* of a strip */
    ELEMENTS = 128                /* of a strip */
};

/* 8 channels of a strip. Channels past the last repeat it, and are not stored. */
typedef struct {
    const NeutronRequantBlock *table;
    const int8_t *weights;
    NeutronEight bias;
    NeutronScales scales;
    NeutronResults results;
    bool once; /* scales of neutron_rounded_once() */
} Eight;

/* All channels of a strip, of a batch. */
typedef struct {
    const NeutronKernelCall *call;
    const NeutronDepthwiseConv2dS8 *p;
    const NeutronBuffer *input, *output;
    const uint8_t *plane; /* of the first channel */
    int32_t channel, count;
    bool side_by_side;       /* the inputs */
    int32_t apart[CHANNELS]; /* inputs, from the first channel's */
    Eight eights[2];
} Block;

/* A strip [rows][cols][CHANNELS]. Its rows are those of the taps of an output, and of the next output below too if there are two. */
typedef struct {
    int32_t rows, cols, outputs; /* a row's outputs */
    bool below;
    int8_t *elements;
} Strip;

static void prepare(Block *block, int32_t n, int32_t channel) {
    const NeutronDepthwiseConv2dS8 *p = block->p;
    const int32_t left = block->call->window.channel1 - channel, first = channel / p->group_outputs;
    block->channel = channel;
    block->count = left < CHANNELS ? left : CHANNELS;
    block->plane = neutron_element_address(block->call->bases, block->input, n, 0, 0, first);
    block->side_by_side = p->group_outputs == 1 && block->input->channel_pitch == 1;
    for (int32_t k = 0; k < CHANNELS && !block->side_by_side; k++) {
        const int32_t last = k < block->count ? k : block->count - 1;
        block->apart[k] = ((channel + last) / p->group_outputs - first) * block->input->channel_pitch;
    }
    for (int32_t k = 0; k < block->count; k += NEUTRON_LANES) {
        const size_t held = (size_t)(channel + k - p->constant_channel0) / NEUTRON_LANES;
        Eight *const eight = &block->eights[k / NEUTRON_LANES];
        eight->table = neutron_requant_blocks(block->call, p) + held;
        eight->weights = neutron_packed_weights(block->call, p) + held * (size_t)p->kernel_h * (size_t)p->kernel_w * NEUTRON_LANES;
        eight->bias = neutron_load_eight_words(eight->table->bias);
        eight->once = p->single_rounding != 0;
        neutron_prepare_scales(&eight->scales, eight->table->multiplier, eight->table->shift);
        eight->results = neutron_results_helium(p->output_zero_point, p->clamp_min, p->clamp_max, block->output->channel_pitch);
        eight->results.lanes = neutron_lanes_helium(0, left - k < NEUTRON_LANES ? left - k : NEUTRON_LANES);
    }
}

/* ---- strips ---------------------------------------------------------------------------------------------------------------- */

static int8_t *repeat(int8_t *to, int8x16_t padding, int32_t count) {
    for (; count > 0; count--, to += CHANNELS) vstrbq_s8(to, padding);
    return to;
}

static int8_t *copy(const Block *block, int8_t *to, const uint8_t *from, int32_t count) {
    const int32_t pitch = block->input->col_pitch;
    if (block->side_by_side && block->count == CHANNELS) {
        for (; count > 0; count--, from += pitch, to += CHANNELS) vstrbq_s8(to, vldrbq_s8((const int8_t *)from));
    } else if (block->side_by_side) {
        const mve_pred16_t some = vctp8q((uint32_t)block->count);
        for (; count > 0; count--, from += pitch, to += CHANNELS) vstrbq_s8(to, vldrbq_z_s8((const int8_t *)from, some));
    } else {
        for (; count > 0; count--, from += pitch, to += CHANNELS) {
            for (int32_t k = 0; k < CHANNELS; k++) to[k] = (int8_t)from[block->apart[k]];
        }
    }
    return to;
}

/* Element (0, 0) of the strip is the input's (row, col), which may be outside. */
static __attribute__((noinline)) void fill(const Block *block, const Strip *strip, int32_t row, int32_t col) {
    const NeutronBuffer *input = block->input;
    const int8x16_t padding = vdupq_n_s8((int8_t)block->p->input_zero_point);
    const int32_t before = neutron_bound(-col, 0, strip->cols), end = neutron_bound(input->cols - col, before, strip->cols);
    int8_t *to = strip->elements;
    for (int32_t i = strip->rows; i > 0; i--, row += block->p->dilation_h) {
        if ((uint32_t)row >= (uint32_t)input->rows) {
            to = repeat(to, padding, strip->cols);
            continue;
        }
        const ptrdiff_t line = (ptrdiff_t)(row % input->ring) * input->row_pitch;
        to = repeat(to, padding, before);
        if (end > before) to = copy(block, to, block->plane + line + (ptrdiff_t)(col + before) * input->col_pitch, end - before);
        to = repeat(to, padding, strip->cols - end);
    }
}

/* ---- sums of products -------------------------------------------------------------------------------------------------------- */

/* Outputs and the strip's element of their first tap. Outputs go by pairs: the second one's element is `in_apart` bytes further, and its
 * bytes are `out_apart` further. From pair to pair it is `in` and `out`. */
typedef struct {
    const int8_t *from;
    uint8_t *to;
    int32_t count;
    ptrdiff_t in_apart, out_apart, in, out, row; /* the strip's */
} Outputs;

static __attribute__((noinline)) void store_once(const Eight *eight, uint8_t *to, NeutronEight sum) {
    for (int32_t i = 0; i < 2; i++) {
        int32_t sums[NEUTRON_LANES / 2];
        vstrwq_s32(sums, sum.val[i]);
        for (int32_t k = 0; k < NEUTRON_LANES / 2; k++) {
            const int32_t multiplier = neutron_sound_multiplier(eight->table->multiplier[2 * k + i]);
            sums[k] = neutron_rounded_once(sums[k], multiplier, eight->table->shift[2 * k + i]);
        }
        sum.val[i] = vldrwq_s32(sums);
    }
    neutron_store_eight_helium(to, &eight->results, sum);
}

static NEUTRON_INLINE void store(const Eight *eight, uint8_t *to, NeutronEight sum) {
    if (eight->once) {
        store_once(eight, to, sum);
        return;
    }
    if (eight->scales.shifts_left) neutron_shift_left_eight(&sum, &eight->scales);
    neutron_requantize_eight(&sum, &eight->scales);
    neutron_store_eight_helium(to, &eight->results, sum);
}

/* The products of a tap of two outputs, whose inputs are `offset` bytes further. Compilers would compute all products before they add any,
 * and run out of registers. */
#define ADD_PRODUCTS(offset) \
    "vldrb.s16 %q[w], [%[weights]], #8\n\t" \
    "vldrb.s16 %q[x], [%[at], #" offset "]\n\t" \
    "vmullb.s16 %q[y], %q[x], %q[w]\n\t" \
    "vmullt.s16 %q[x], %q[x], %q[w]\n\t" \
    "vadd.i32 %q[a], %q[a], %q[y]\n\t" \
    "vadd.i32 %q[b], %q[b], %q[x]\n\t" \
    "vldrb.s16 %q[x], [%[other], #" offset "]\n\t" \
    "vmullb.s16 %q[y], %q[x], %q[w]\n\t" \
    "vmullt.s16 %q[x], %q[x], %q[w]\n\t" \
    "vadd.i32 %q[c], %q[c], %q[y]\n\t" \
    "vadd.i32 %q[d], %q[d], %q[x]\n\t"

#define ADD_PRODUCTS_OF(taps, sum, second, at_, other_, weights_) \
    do { \
        int16x8_t w, x; \
        int32x4_t y; \
        __asm__ volatile(taps \
                         : [a] "+w"((sum).val[0]), [b] "+w"((sum).val[1]), [c] "+w"((second).val[0]), [d] "+w"((second).val[1]), \
                           [weights] "+l"(weights_), [w] "=&w"(w), [x] "=&w"(x), [y] "=&w"(y) \
                         : [at] "l"(at_), [other] "l"(other_) \
                         : "memory"); \
    } while (0)

/* Kernels of any size. The last output of an odd count is computed twice, and stored once. */
static void compute(const Block *block, const Eight *eight, const Outputs *outputs) {
    const NeutronDepthwiseConv2dS8 *p = block->p;
    const ptrdiff_t step = (ptrdiff_t)p->dilation_w * CHANNELS;
    const int8_t *from = outputs->from;
    uint8_t *to = outputs->to;
    for (int32_t left = outputs->count; left > 0; left -= 2, from += outputs->in, to += outputs->out) {
        const ptrdiff_t apart = left > 1 ? outputs->in_apart : 0;
        const int8_t *weights = eight->weights, *row = from;
        NeutronEight sum = eight->bias, second = sum;
        for (int32_t i = p->kernel_h; i > 0; i--, row += outputs->row) {
            for (int32_t j = 0; j < p->kernel_w; j++) {
                const int8_t *const at = row + j * step;
                ADD_PRODUCTS_OF(ADD_PRODUCTS("0"), sum, second, at, at + apart, weights);
            }
        }
        store(eight, to, sum);
        if (left > 1) store(eight, to + outputs->out_apart, second);
    }
}

#if NEUTRON_FAST_DSP
static NEUTRON_INLINE int16x8_t bounded(const NeutronResults *as, const NeutronEight *x) {
    const int16x8_t narrow = vqmovntq_s32(vqmovnbq_s32(vdupq_n_s16(0), x->val[0]), x->val[1]);
    return vminq_s16(vmaxq_s16(vqaddq_n_s16(narrow, as->zero_point), as->low), as->high);
}

/* The same for kernels of 3 by 3 taps side by side, and 8 channels side by side whose scales do not shift to the left. */
static __attribute__((noinline)) void compute_three(const Eight *eight, const Outputs *outputs) {
    const int8_t *from = outputs->from;
    uint8_t *to = outputs->to;
    for (int32_t left = outputs->count; left > 0; left -= 2, from += outputs->in, to += outputs->out) {
        const int8_t *weights = eight->weights, *at = from, *other = left > 1 ? from + outputs->in_apart : from;
        NeutronEight sum = eight->bias, second = sum;
        NEUTRON_UNROLL
        for (int i = 0; i < 3; i++, at += outputs->row, other += outputs->row) {
            ADD_PRODUCTS_OF(ADD_PRODUCTS("0") ADD_PRODUCTS("16") ADD_PRODUCTS("32"), sum, second, at, other, weights);
        }
        NEUTRON_UNROLL
        for (int i = 0; i < 2; i++) {
            const int32x4_t multiplier = eight->scales.multiplier.val[i], right = eight->scales.right.val[i];
            sum.val[i] = neutron_shift_right_helium(vqrdmulhq_s32(sum.val[i], multiplier), right);
            second.val[i] = neutron_shift_right_helium(vqrdmulhq_s32(second.val[i], multiplier), right);
        }
        vstrbq_s16((int8_t *)to, bounded(&eight->results, &sum));
        if (left > 1) vstrbq_s16((int8_t *)to + outputs->out_apart, bounded(&eight->results, &second));
    }
}
#endif

static void compute_eight(const Block *block, const Eight *eight, const Outputs *outputs) {
#if NEUTRON_FAST_DSP
    const NeutronDepthwiseConv2dS8 *p = block->p;
    if (p->kernel_h == 3 && p->kernel_w == 3 && p->dilation_w == 1 && !eight->once && !eight->scales.shifts_left &&
        eight->results.lanes == UINT16_MAX && eight->results.pitch == 1) {
        compute_three(eight, outputs);
        return;
    }
#endif
    compute(block, eight, outputs);
}

/* ---- outputs ----------------------------------------------------------------------------------------------------------------- */

/* The rows of taps of two outputs, one below the other, are those of one longer kernel. */
static void shape(Strip *strip, const NeutronDepthwiseConv2dS8 *p, int32_t rows_left) {
    const int64_t span = (int64_t)(p->kernel_w - 1) * p->dilation_w + 1;
    strip->rows = p->kernel_h;
    strip->below = rows_left > 1 && p->dilation_h == 1 && (p->kernel_h + (int64_t)p->stride_h) * span <= ELEMENTS;
    if (strip->below) strip->rows += p->stride_h;
    strip->outputs = (ELEMENTS / strip->rows - (int32_t)span) / p->stride_w + 1;
}

/* The outputs of row r from column c on, and of the next one too where the strip is of two. */
static void compute_outputs(const Block *block, const Strip *strip, int32_t n, int32_t r, int32_t c, int32_t count) {
    const NeutronDepthwiseConv2dS8 *p = block->p;
    const NeutronBuffer *output = block->output;
    fill(block, strip, r * p->stride_h - p->pad_top, c * p->stride_w - p->pad_left);
    const ptrdiff_t in = (ptrdiff_t)p->stride_w * CHANNELS, row = (ptrdiff_t)strip->cols * CHANNELS;
    Outputs outputs = {.from = strip->elements, .row = row, .in = in, .out = output->col_pitch, .count = 2 * count};
    outputs.to = neutron_element_address(block->call->bases, output, n, r, c, block->channel);
    if (strip->below) {
        outputs.in_apart = p->stride_h * row;
        outputs.out_apart = neutron_element_address(block->call->bases, output, n, r + 1, c, block->channel) - outputs.to;
    } else {
        outputs.in_apart = in;
        outputs.out_apart = outputs.out;
        outputs.in *= 2;
        outputs.out *= 2;
        outputs.count = count;
    }
    compute_eight(block, &block->eights[0], &outputs);
    if (block->count <= NEUTRON_LANES) return;
    outputs.from += NEUTRON_LANES;
    outputs.to += (ptrdiff_t)NEUTRON_LANES * output->channel_pitch;
    compute_eight(block, &block->eights[1], &outputs);
}

static void compute_rows(const Block *block, int32_t n) {
    const NeutronDepthwiseConv2dS8 *p = block->p;
    const NeutronWindowExtents *w = &block->call->window;
    int8_t elements[ELEMENTS * CHANNELS];
    Strip strip = {.elements = elements};
    for (int32_t r = w->row0; r < w->row1; r += strip.below ? 2 : 1) {
        shape(&strip, p, w->row1 - r);
        for (int32_t c = w->col0, count; c < w->col1; c += count) {
            count = w->col1 - c < strip.outputs ? w->col1 - c : strip.outputs;
            strip.cols = (count - 1) * p->stride_w + (p->kernel_w - 1) * p->dilation_w + 1;
            compute_outputs(block, &strip, n, r, c, count);
        }
    }
}

void depthwise_conv_2d_s8_run(const NeutronKernelCall *call) {
    const NeutronDepthwiseConv2dS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    if (p->kernel_h * ((int64_t)(p->kernel_w - 1) * p->dilation_w + 1) > ELEMENTS) {
        depthwise_conv_2d_s8_run_portable(call);
        return;
    }
    Block block = {.call = call, .p = p, .input = &call->buffers[p->input], .output = &call->buffers[p->output]};
    for (int32_t n = w->batch0; n < w->batch1; n++) {
        for (int32_t k = w->channel0; k < w->channel1; k += CHANNELS) {
            prepare(&block, n, k);
            compute_rows(&block, n);
        }
    }
}

void depthwise_conv_2d_s8_run_3x3(const NeutronKernelCall *call) { depthwise_conv_2d_s8_run(call); }

#endif
