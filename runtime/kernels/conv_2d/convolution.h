/* SPDX-License-Identifier: BSD-3-Clause */
/* The code of the three convolution kernels: their check, the addresses that a call's words mean, and the portable way from
 * an accumulator to a stored value.
 *
 * An output element (n, r, c, k) is the sum over all taps (i, j) and all channels of k's group of
 *     input(n, r * stride_h - pad_top + i * dilation_h, c * stride_w - pad_left + j * dilation_w, channel) * weight,
 * where places outside the input's rows and columns count as input_zero_point, plus the folded bias, modulo 2^32;
 * then the product with the channel's real number (neutron_requantize(), or with one rounding), bounds and zero point.
 *
 * A kernel has a portable run, which takes every call, and faster ones, each of which returns false where a call is none
 * of those it is made for. With the DSP extension there is one run alone, which takes every call. All give the same bytes.
 * They differ in the order in which they go through the window, so an output may not overlap its input. */
#ifndef NEUTRON_CONVOLUTION_H
#define NEUTRON_CONVOLUTION_H

#include "dsp.h"
#include "elements.h"
#include "helium.h"

#if defined(__SSE2__) && !defined(NEUTRON_PORTABLE_ONLY)
#include <emmintrin.h>
#elif defined(__ARM_NEON) && !defined(NEUTRON_PORTABLE_ONLY)
#include <arm_neon.h>
#endif

#if defined(__x86_64__) && !defined(NEUTRON_PORTABLE_ONLY)
#define NEUTRON_X86_VARIANTS 1
#else
#define NEUTRON_X86_VARIANTS 0
#endif

#if defined(__aarch64__) && defined(__ARM_NEON) && !defined(NEUTRON_PORTABLE_ONLY)
#define NEUTRON_NEON_VARIANTS 1
#else
#define NEUTRON_NEON_VARIANTS 0
#endif

void conv_2d_s8_run_portable(const NeutronKernelCall *call);
void conv_2d_1x1_s8_run_portable(const NeutronKernelCall *call);
void depthwise_conv_2d_s8_run_portable(const NeutronKernelCall *call);

#if NEUTRON_X86_VARIANTS
bool conv_2d_s8_run_avx2(const NeutronKernelCall *call);
bool conv_2d_1x1_s8_run_avx2(const NeutronKernelCall *call);
bool depthwise_conv_2d_s8_run_avx2(const NeutronKernelCall *call);
#endif

#if NEUTRON_NEON_VARIANTS
bool conv_2d_s8_run_neon(const NeutronKernelCall *call);
bool conv_2d_1x1_s8_run_neon(const NeutronKernelCall *call);
bool depthwise_conv_2d_s8_run_neon(const NeutronKernelCall *call);
#endif

/* ---- check ---------------------------------------------------------------------------------------------------------- */

/* Everything but what the three kernels differ in. block_bytes: packed weights of 8 output channels and one tap. */
NEUTRON_SMALL bool neutron_convolution_is_sound(const NeutronProgramView *program, const NeutronConv2dS8 *p,
                                  const NeutronWindowExtents *window, uint64_t block_bytes);

#if NEUTRON_X86_VARIANTS
/* The steps of a depthwise kernel in a row: `parts` of the kernel's rows, and a `stretch` of outputs at a time. */
typedef struct {
    int32_t parts, stretch;
    bool is_3x3; /* with columns next to each other */
} NeutronDepthwiseShape;

/* False where only the portable variant takes the call. `weights` and `columns`: vectors there is memory for. */
static inline bool neutron_depthwise_fits(NeutronDepthwiseShape *shape, const NeutronKernelCall *call, int32_t part_rows,
                                          int32_t most_rows, int32_t weights, int32_t columns) {
    const NeutronDepthwiseConv2dS8 *p = call->params;
    if (p->group_outputs != 1 || p->single_rounding != 0 || call->buffers[p->input].channel_pitch != 1 ||
        call->buffers[p->output].channel_pitch != 1 || p->kernel_h > most_rows) {
        return false;
    }
    shape->is_3x3 = p->kernel_h == 3 && p->kernel_w == 3 && p->dilation_w == 1;
    shape->parts = (p->kernel_h + part_rows - 1) / part_rows;
    const int64_t span = (int64_t)(p->kernel_w - 1) * p->dilation_w + 1;
    columns /= shape->parts;
    if (p->kernel_w > weights / shape->parts || span > columns) return false;
    shape->stretch = (columns - (int32_t)span) / p->stride_w + 1;
    return true;
}
#endif

/* ---- constants ------------------------------------------------------------------------------------------------------ */

/* One entry of the requantization table: 8 channels. */
typedef struct {
    int32_t bias[NEUTRON_LANES], multiplier[NEUTRON_LANES], shift[NEUTRON_LANES];
} NeutronRequantBlock;

static inline const NeutronRequantBlock *neutron_requant_blocks(const NeutronKernelCall *call, const NeutronConv2dS8 *p) {
    const void *base = neutron_base_address(call->bases, p->requant_base) + p->requant_offset;
    return base;
}

static inline const int8_t *neutron_packed_weights(const NeutronKernelCall *call, const NeutronConv2dS8 *p) {
    const void *base = neutron_base_address(call->bases, p->weights_base) + p->weights_offset;
    return base;
}

static inline size_t neutron_blocks_of(int32_t channels) { return ((size_t)channels + NEUTRON_LANES - 1) / NEUTRON_LANES; }

/* ---- pointwise ------------------------------------------------------------------------------------------------------ */

/* All rows of the window follow each other without a gap. */
static inline bool neutron_rows_join(const NeutronBuffer *buffer, const NeutronWindowExtents *w) {
    const int64_t cols = w->col1 - w->col0;
    return w->row1 - w->row0 == 1 || (buffer->ring == buffer->rows && cols * buffer->col_pitch == buffer->row_pitch);
}

/* The inputs and the outputs of a conv_2d_1x1_s8 call do. */
static inline bool neutron_pixels_join(const NeutronKernelCall *call) {
    const NeutronConv2d1x1S8 *p = call->params;
    return p->stride_h == 1 && p->stride_w == 1 && neutron_rows_join(&call->buffers[p->input], &call->window) &&
           neutron_rows_join(&call->buffers[p->output], &call->window);
}

/* Pixels a fixed step apart: of one row, or of all rows where they follow each other without a gap. */
typedef struct {
    const uint8_t *in;
    uint8_t *out;
    ptrdiff_t in_pitch, out_pitch;
    int64_t pixels;
} NeutronLine;

/* The pixels of output row r of a conv_2d_1x1_s8 call, and where they are `joined` of those below it; the output from
 * channel k on. */
static inline NeutronLine neutron_line_of_row(const NeutronKernelCall *call, int32_t n, int32_t r, int32_t k, bool joined) {
    const NeutronConv2d1x1S8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *input = &call->buffers[p->input], *output = &call->buffers[p->output];
    return (NeutronLine){
        .in = neutron_element_address(call->bases, input, n, r * p->stride_h, w->col0 * p->stride_w, 0),
        .out = neutron_element_address(call->bases, output, n, r, w->col0, k),
        .in_pitch = (ptrdiff_t)p->stride_w * input->col_pitch,
        .out_pitch = output->col_pitch,
        .pixels = (int64_t)(w->col1 - w->col0) * (joined ? w->row1 - w->row0 : 1),
    };
}

/* Pixels whose inputs stay in a first-level cache while all output channels pass by. */
static inline int64_t neutron_tile_pixels(int32_t inputs) {
    const int64_t pixels = 24 * 1024 / inputs & ~INT64_C(7);
    return pixels < 32 ? 32 : pixels;
}

/* ---- requantization ------------------------------------------------------------------------------------------------- */

/* check can't read the table, so its words are brought into range here. What a compiler writes is in range. */
static inline int32_t neutron_sound_shift(int32_t shift) { return neutron_bound(shift, -31, 30); }
static inline int32_t neutron_sound_multiplier(int32_t multiplier) {
    return multiplier == INT32_MIN ? -INT32_MAX : multiplier;
}

/* neutron_requantize() of an accumulator. */
static inline int32_t neutron_rounded_twice(int32_t accumulator, int32_t multiplier, int32_t shift) {
    const int32_t sound = neutron_sound_shift(shift), left = sound > 0 ? sound : 0;
    const int32_t high = neutron_high_mul((int32_t)((uint32_t)accumulator << left), multiplier);
    return neutron_rounding_shift_right(high, left - sound);
}

/* round(accumulator * (multiplier + low / 2^20) * 2^(shift - 31)), halves up. word: shift in bits 0 to 7, low in 8 to 27. */
static inline int32_t neutron_rounded_once(int32_t accumulator, int32_t multiplier, int32_t word) {
    const int32_t right = 31 - neutron_sound_shift(((word & 0xFF) ^ 0x80) - 0x80), low = word >> 8 & 0xFFFFF;
    const int64_t fine = (int64_t)accumulator * low >> 20;
    const int64_t sum = (int64_t)accumulator * multiplier + fine + (INT64_C(1) << (right - 1));
    const int64_t rounded = sum >> right;
    return rounded > INT32_MAX ? INT32_MAX : (rounded < INT32_MIN ? INT32_MIN : (int32_t)rounded);
}

/* The first `count` of 8 accumulators to their stored values. */
static inline void neutron_store_accumulators(const NeutronConv2dS8 *p, const NeutronRequantBlock *table,
                                              const uint32_t *accumulators, uint8_t *out, int32_t channel_pitch,
                                              int32_t count) {
    const int32_t zero_point = p->output_zero_point;
    for (int32_t k = 0; k < count; k++) {
        const int32_t accumulator = (int32_t)accumulators[k];
        const int32_t multiplier = neutron_sound_multiplier(table->multiplier[k]);
        const int32_t scaled = p->single_rounding != 0 ? neutron_rounded_once(accumulator, multiplier, table->shift[k])
                                                       : neutron_rounded_twice(accumulator, multiplier, table->shift[k]);
        /* Bounded before the zero point is added, so that the sum can't overflow. */
        const int32_t bounded = neutron_bound(scaled, p->clamp_min - zero_point, p->clamp_max - zero_point);
        out[(ptrdiff_t)k * channel_pitch] = (uint8_t)(bounded + zero_point);
    }
}

/* ---- sums of products ----------------------------------------------------------------------------------------------- */

/* The running sums of 8 output channels. Where the processor multiplies vectors, each channel has several partial sums,
 * which are put together at the end. */
#if defined(__SSE2__) && !defined(NEUTRON_PORTABLE_ONLY)

typedef struct {
    __m128i part[NEUTRON_LANES];
} NeutronSums;

static NEUTRON_INLINE __m128i neutron_widened(__m128i bytes) {
    return _mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8);
}

/* Adds the products of 8 inputs with a block of weights [8 k][8 inputs]. */
static NEUTRON_INLINE void neutron_multiply_block(NeutronSums *sums, const int8_t *weights, const int8_t *inputs) {
    const void *at = inputs;
    const __m128i x = neutron_widened(_mm_loadl_epi64((const __m128i *)at));
    NEUTRON_UNROLL
    for (int k = 0; k < NEUTRON_LANES; k++) {
        at = weights + k * NEUTRON_LANES;
        const __m128i w = neutron_widened(_mm_loadl_epi64((const __m128i *)at));
        sums->part[k] = _mm_add_epi32(sums->part[k], _mm_madd_epi16(w, x));
    }
}

static NEUTRON_INLINE void neutron_add_sums(uint32_t *accumulators, const NeutronSums *sums) {
    uint32_t parts[4];
    for (int k = 0; k < NEUTRON_LANES; k++) {
        memcpy(parts, &sums->part[k], sizeof parts);
        accumulators[k] += parts[0] + parts[1] + parts[2] + parts[3];
    }
}

#elif defined(__ARM_NEON) && !defined(NEUTRON_PORTABLE_ONLY)

typedef struct {
    int32x4_t part[NEUTRON_LANES];
} NeutronSums;

/* Adds the products of 8 inputs with a block of weights [8 k][8 inputs]. */
static NEUTRON_INLINE void neutron_multiply_block(NeutronSums *sums, const int8_t *weights, const int8_t *inputs) {
    const int8x8_t x = vld1_s8(inputs);
    NEUTRON_UNROLL
    for (int k = 0; k < NEUTRON_LANES; k++) {
        sums->part[k] = vpadalq_s16(sums->part[k], vmull_s8(vld1_s8(weights + k * NEUTRON_LANES), x));
    }
}

static NEUTRON_INLINE void neutron_add_sums(uint32_t *accumulators, const NeutronSums *sums) {
    uint32_t parts[4];
    for (int k = 0; k < NEUTRON_LANES; k++) {
        vst1q_u32(parts, vreinterpretq_u32_s32(sums->part[k]));
        accumulators[k] += parts[0] + parts[1] + parts[2] + parts[3];
    }
}

#else

typedef struct {
    uint32_t sum[NEUTRON_LANES];
} NeutronSums;

/* Adds the products of 8 inputs with a block of weights [8 k][8 inputs]. */
static inline void neutron_multiply_block(NeutronSums *sums, const int8_t *weights, const int8_t *inputs) {
    for (int32_t k = 0; k < NEUTRON_LANES; k++) {
        int32_t sum = 0;
        for (int32_t i = 0; i < NEUTRON_LANES; i++) sum += weights[k * NEUTRON_LANES + i] * inputs[i];
        sums->sum[k] += (uint32_t)sum;
    }
}

static inline void neutron_add_sums(uint32_t *accumulators, const NeutronSums *sums) {
    for (int32_t k = 0; k < NEUTRON_LANES; k++) accumulators[k] += sums->sum[k];
}

#endif

/* Adds the products of all of `inputs` channels of one input pixel; the weights' blocks follow each other. */
static NEUTRON_INLINE void neutron_multiply_pixel(NeutronSums *sums, const int8_t *weights, const uint8_t *pixel,
                                                  int32_t channel_pitch, int32_t inputs) {
    int8_t block[NEUTRON_LANES];
    int32_t i = 0;
    for (; i <= inputs - NEUTRON_LANES; i += NEUTRON_LANES) {
        neutron_load_block(block, pixel + (ptrdiff_t)i * channel_pitch, channel_pitch, NEUTRON_LANES);
        neutron_multiply_block(sums, weights, block);
        weights += NEUTRON_LANES * NEUTRON_LANES;
    }
    if (i < inputs) {
        memset(block, 0, sizeof block);
        for (int32_t rest = i; rest < inputs; rest++) {
            block[rest - i] = (int8_t)pixel[(ptrdiff_t)rest * channel_pitch];
        }
        neutron_multiply_block(sums, weights, block);
    }
}

/* ---- the portable way through a window: 8 output channels of one output element at a time ----------------------------- */

/* An output element, by the input position of its tap (0, 0), which may be outside the input. p: the words that the convolutions of
 * all types share. */
typedef struct {
    const NeutronKernelCall *call;
    const NeutronConv2dS8 *p;
    const NeutronBuffer *input;
    int32_t n, row, col;
} NeutronTapPosition;

/* The input element of the taps of kernel row i in column 0, or NULL if the row is outside the input. */
static NEUTRON_INLINE const uint8_t *neutron_tap_row(const NeutronTapPosition *at, int32_t i, int32_t channel) {
    const int32_t row = at->row + i * at->p->dilation_h;
    if (row < 0 || row >= at->input->rows) return NULL;
    return neutron_element_address(at->call->bases, at->input, at->n, row, 0, channel);
}

/* The input element of tap j of that row, or NULL if the tap is outside the input. */
static NEUTRON_INLINE const uint8_t *neutron_tap(const NeutronTapPosition *at, const uint8_t *row, int32_t j) {
    const int32_t col = at->col + j * at->p->dilation_w;
    return row != NULL && col >= 0 && col < at->input->cols ? row + (ptrdiff_t)col * at->input->col_pitch : NULL;
}

/* Computes and stores `count` output channels from `channel` on, a multiple of 8. `weights` and `table` are theirs. */
typedef void (*NeutronComputeBlock)(const NeutronTapPosition *at, int32_t channel, int32_t count, const int8_t *weights,
                                    const void *table, uint8_t *out, int32_t out_pitch);

/* compute() for the whole window. block_bytes, table_bytes: of 8 output channels. */
static NEUTRON_INLINE void neutron_compute_blocks(const NeutronKernelCall *call, size_t block_bytes, size_t table_bytes,
                                                  NeutronComputeBlock compute) {
    const NeutronConv2dS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *output = &call->buffers[p->output];
    const size_t first_block = (size_t)(w->channel0 - p->constant_channel0) / NEUTRON_LANES;
    const int8_t *const weights = neutron_packed_weights(call, p) + first_block * block_bytes;
    const uint8_t *const table =
        neutron_base_address(call->bases, p->requant_base) + p->requant_offset + first_block * table_bytes;
    NeutronTapPosition at = {.call = call, .p = p, .input = &call->buffers[p->input]};
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        at.n = n;
        at.row = r * p->stride_h - p->pad_top;
        for (int32_t c = w->col0; c < w->col1; c++) {
            at.col = c * p->stride_w - p->pad_left;
            uint8_t *out = neutron_element_address(call->bases, output, n, r, c, w->channel0);
            const int8_t *block = weights;
            const uint8_t *entry = table;
            for (int32_t k = w->channel0; k < w->channel1; k += NEUTRON_LANES) {
                const int32_t count = w->channel1 - k < NEUTRON_LANES ? w->channel1 - k : NEUTRON_LANES;
                compute(&at, k, count, block, entry, out, output->channel_pitch);
                entry += table_bytes;
                block += block_bytes;
                out += (ptrdiff_t)NEUTRON_LANES * output->channel_pitch;
            }
        }
    }
}

#endif
