/* SPDX-License-Identifier: BSD-3-Clause */
/* depthwise_conv_2d_s8 for the DSP extension: four channels of an output at a time. This takes every call.
 *
 * The taps of a row of outputs are a list, column by column, so that outputs at the left and right edge go through a part
 * of it. Taps outside the input are skipped: the zero point is subtracted from the inputs as they are widened, and its
 * product with the sum of the weights goes back into the bias. */
#include "conv_2d/convolution_dsp.h"
#include "elements_dsp.h"

#if NEUTRON_DSP && !NEUTRON_HELIUM

enum { FOUR = 4, MOST_TAPS = 49 }; /* in the list; those of a larger kernel come one part after the other */

typedef struct {
    ptrdiff_t offset;   /* of the input, from the place of the output's first row and column 0 */
    uint32_t even, odd; /* weights of channels 0 and 2, and of 1 and 3 */
} Tap;

/* The rows or columns [first, end) of a kernel that are inside the input. */
typedef struct {
    int32_t first, end;
} Range;

typedef struct {
    uint32_t sum[FOUR];
} Sums;

/* Four channels of a batch. Channels past the last repeat it, and are not stored. */
typedef struct {
    const NeutronKernelCall *call;
    const NeutronDepthwiseConv2dS8 *p;
    const NeutronBuffer *input, *output;
    int32_t count;          /* channels to store */
    bool side_by_side;      /* the inputs */
    const uint8_t *plane;   /* of the first channel */
    const int8_t *packed;   /* weights, in the block of 8 */
    const int32_t *table;   /* the first channel's bias; multipliers are 8 and shifts 16 words behind */
    /* Not of 3x3: */
    uint32_t zero_points, low, high; /* less two of the input; bounds of four bytes */
    bool whole;             /* the outputs are stored as a word, and all scales are of those that `scale` can hold */
    int32_t apart[FOUR];    /* inputs, from the first channel's */
    Sums bias, partial;
    NeutronDspScale scale[FOUR];
    Range listed; /* rows in the list, which may stay there for another row of outputs */
    Tap taps[MOST_TAPS];
} Four;

/* The taps that outputs next to each other go through. */
typedef struct {
    const Tap *first, *end;
} List;

static __attribute__((noinline)) uint8_t *address_of(const Four *four, const NeutronBuffer *buffer, int32_t n, int32_t r,
                                                     int32_t c, int32_t k) {
    return neutron_element_address(four->call->bases, buffer, n, r, c, k);
}

static __attribute__((noinline)) Range inside(int32_t origin, int32_t kernel, int32_t dilation, int32_t extent) {
    Range taps = {0, kernel};
    if (origin < 0) taps.first = (dilation - 1 - origin) / dilation;
    if (extent - origin <= (kernel - 1) * dilation) {
        taps.end = extent > origin ? (extent - origin - 1) / dilation + 1 : 0;
    }
    if (taps.end < taps.first) taps.end = taps.first;
    return taps;
}

/* ---- constants ------------------------------------------------------------------------------------------------------ */

static inline int32_t multiplier_of(const Four *four, int32_t k) { return four->table[NEUTRON_LANES + k]; }
static inline int32_t shift_of(const Four *four, int32_t k) { return four->table[2 * NEUTRON_LANES + k]; }

static void prepare(Four *four, int32_t channel) {
    const NeutronDepthwiseConv2dS8 *p = four->p;
    four->zero_points = neutron_twice(-p->input_zero_point);
    four->low = neutron_four_bytes(p->clamp_min);
    four->high = neutron_four_bytes(p->clamp_max);
    four->listed.first = -1;
    for (int32_t k = 0; k < FOUR; k++) {
        const int32_t last = k < four->count ? k : four->count - 1;
        four->apart[k] = ((channel + last) / p->group_outputs - channel / p->group_outputs) * four->input->channel_pitch;
    }
    const int32_t taps = p->kernel_h * p->kernel_w;
    four->whole = p->single_rounding == 0 && four->count == FOUR && four->output->channel_pitch == 1 && taps <= MOST_TAPS;
    for (int32_t k = 0; k < FOUR; k++) {
        const int32_t multiplier = multiplier_of(four, k);
        /* A product with 0 is 0 with any shift. */
        const int32_t shift = multiplier == 0 ? -2 : shift_of(four, k);
        if (neutron_dsp_scale_fits(multiplier, shift)) {
            four->scale[k] = neutron_dsp_scale(multiplier, shift, p->output_zero_point);
        } else {
            four->whole = false;
        }
        four->bias.sum[k] = (uint32_t)four->table[k];
    }
    const int8_t *weights = four->packed;
    for (int32_t i = 0; i < taps; i++, weights += NEUTRON_LANES) {
        for (int32_t k = 0; k < FOUR; k++) four->bias.sum[k] += (uint32_t)(weights[k] * p->input_zero_point);
    }
}

/* Taps of some rows and columns of the kernel, the first of which looks at line `line` of the ring. */
static void list_taps(Four *four, Range rows, Range cols, int32_t line) {
    const NeutronDepthwiseConv2dS8 *p = four->p;
    const NeutronBuffer *input = four->input;
    Tap *tap = four->taps;
    for (int32_t j = cols.first; j < cols.end; j++) {
        const int8_t *weights = four->packed + ((ptrdiff_t)rows.first * p->kernel_w + j) * NEUTRON_LANES;
        int32_t at = line;
        for (int32_t i = rows.first; i < rows.end; i++, tap++) {
            const uint32_t word = neutron_load_word((const uint8_t *)weights);
            tap->offset = (ptrdiff_t)(at % input->ring - line) * input->row_pitch +
                          (ptrdiff_t)(j * p->dilation_w) * input->col_pitch;
            tap->even = neutron_even_bytes(word);
            tap->odd = neutron_odd_bytes(word);
            weights += (ptrdiff_t)p->kernel_w * NEUTRON_LANES;
            at += p->dilation_h;
        }
    }
}

/* ---- outputs -------------------------------------------------------------------------------------------------------- */

static NEUTRON_INLINE void multiply_tap(Sums *sums, uint32_t word, const Tap *tap, uint32_t zero_points) {
    const uint32_t even = neutron_add_even_bytes(zero_points, word), odd = neutron_add_odd_bytes(zero_points, word);
    const uint32_t even_weights = tap->even, odd_weights = tap->odd;
    sums->sum[0] = neutron_add_low_product(even, even_weights, sums->sum[0]);
    sums->sum[1] = neutron_add_low_product(odd, odd_weights, sums->sum[1]);
    sums->sum[2] = neutron_add_high_product(even, even_weights, sums->sum[2]);
    sums->sum[3] = neutron_add_high_product(odd, odd_weights, sums->sum[3]);
}

/* The stored value of a channel's sum, of any scale. */
static __attribute__((noinline)) uint8_t stored_any(const Four *four, int32_t k, uint32_t sum) {
    const NeutronDepthwiseConv2dS8 *p = four->p;
    const int32_t x = neutron_rescaled_dsp(p, (int32_t)sum, multiplier_of(four, k), shift_of(four, k));
    return (uint8_t)neutron_bound(__qadd(x, p->output_zero_point), p->clamp_min, p->clamp_max);
}

static __attribute__((noinline)) void store_any(const Four *four, const Sums *sums, uint8_t *out) {
    for (int32_t k = 0; k < four->count; k++, out += four->output->channel_pitch) {
        *out = stored_any(four, k, sums->sum[k]);
    }
}

static NEUTRON_INLINE void store(Four *four, const Sums *sums, uint8_t *out) {
    if (four->whole) {
        int32_t x[FOUR];
        NEUTRON_UNROLL
        for (int k = 0; k < FOUR; k++) x[k] = neutron_dsp_rounded_twice((int32_t)sums->sum[k], four->scale[k]);
        const uint32_t word = neutron_max_bytes(neutron_stored_word(x[0], x[1], x[2], x[3]), four->low);
        neutron_store_word(out, neutron_min_bytes(word, four->high));
    } else {
        four->partial = *sums;
        if (out != NULL) store_any(four, &four->partial, out);
    }
}

/* `count` outputs. from: the first one's place in the input. Where `out` is NULL, the sums go to `partial`. */
static __attribute__((noinline)) void compute(Four *four, const Sums *start, List list, const uint8_t *from, uint8_t *out,
                                              int32_t count) {
    const uint32_t zero_points = four->zero_points;
    for (; count > 0; count--) {
        Sums sums = *start;
        const Tap *tap = list.first;
        if (four->side_by_side) {
            for (; tap + 3 <= list.end; tap += 3) {
                multiply_tap(&sums, neutron_load_word(from + tap[0].offset), tap, zero_points);
                multiply_tap(&sums, neutron_load_word(from + tap[1].offset), tap + 1, zero_points);
                multiply_tap(&sums, neutron_load_word(from + tap[2].offset), tap + 2, zero_points);
            }
        }
        for (; tap < list.end; tap++) {
            const int32_t *apart = four->apart;
            const uint8_t *x = from + tap->offset;
            const uint32_t word = neutron_packed_bytes(x[apart[0]], x[apart[1]], x[apart[2]], x[apart[3]]);
            multiply_tap(&sums, word, tap, zero_points);
        }
        store(four, &sums, out);
        from += four->p->stride_w * four->input->col_pitch;
        out += four->output->col_pitch;
    }
}

/* An output of a kernel whose taps are not listed all at once. from: the place of the kernel's first row and column. */
static void compute_in_parts(Four *four, Range rows, Range cols, int32_t row, int32_t col, uint8_t *out) {
    const List none = {four->taps, four->taps};
    four->partial = four->bias;
    for (Range j = {cols.first, cols.first}; j.first < cols.end; j.first = j.end) {
        j.end = j.first + 1;
        for (Range i = {rows.first, rows.first}; i.first < rows.end; i.first = i.end) {
            i.end = rows.end - i.first > MOST_TAPS ? i.first + MOST_TAPS : rows.end;
            const int32_t line = (row + i.first * four->p->dilation_h) % four->input->ring;
            const List list = {four->taps, four->taps + (i.end - i.first)};
            list_taps(four, i, j, line);
            compute(four, &four->partial, list,
                    four->plane + (ptrdiff_t)line * four->input->row_pitch + (ptrdiff_t)col * four->input->col_pitch, NULL, 1);
        }
    }
    compute(four, &four->partial, none, four->plane, out, 1);
}

static void compute_row(Four *four, int32_t n, int32_t r, int32_t channel) {
    const NeutronDepthwiseConv2dS8 *p = four->p;
    const NeutronBuffer *input = four->input;
    const NeutronWindowExtents *w = &four->call->window;
    const int32_t row = r * p->stride_h - p->pad_top;
    const Range rows = inside(row, p->kernel_h, p->dilation_h, input->rows), all = {0, p->kernel_w};
    const int32_t height = rows.end - rows.first;
    const int32_t line = height > 0 ? (row + rows.first * p->dilation_h) % input->ring : 0;
    const int32_t last = input->cols - (p->kernel_w - 1) * p->dilation_w; /* past the last column without padding */
    const bool whole = p->kernel_h * p->kernel_w <= MOST_TAPS;
    if (whole && (rows.first != four->listed.first || rows.end != four->listed.end)) {
        list_taps(four, rows, all, line);
        /* In a ring, the next row of outputs may have its lines elsewhere. */
        if (input->ring == input->rows) four->listed = rows;
    }
    uint8_t *out = address_of(four, four->output, n, r, w->col0, channel);
    int32_t count = 1;
    for (int32_t c = w->col0; c < w->col1; c += count, out += (ptrdiff_t)count * four->output->col_pitch) {
        const int32_t col = c * p->stride_w - p->pad_left;
        const uint8_t *from = four->plane + (ptrdiff_t)line * input->row_pitch + (ptrdiff_t)col * input->col_pitch;
        Range cols = {0, p->kernel_w};
        count = 1;
        if (col >= 0 && col < last && whole) {
            count = (last - 1 - col) / p->stride_w + 1;
            if (count > w->col1 - c) count = w->col1 - c;
        } else {
            cols = inside(col, p->kernel_w, p->dilation_w, input->cols);
        }
        if (whole) {
            const List list = {four->taps + cols.first * height, four->taps + cols.end * height};
            compute(four, &four->bias, list, from, out, count);
        } else {
            compute_in_parts(four, rows, cols, row, col, out);
        }
    }
}

/* ---- kernels of 3 rows and 3 columns --------------------------------------------------------------------------------- */

/* The inputs of four channels in three rows are laid out by channel and row, in pairs of columns next to each other. An output
 * is the sum of three pairs and three single products. */

enum { ROWS = 3, MOST_PAIRS = 32 };

typedef struct {
    uint32_t weights[2 * ROWS - 1][2]; /* rows 0, 1, 2, 0 and 1: columns 0 and 1, then 1 and 2 */
    NeutronDspScale scale;
    int32_t bias;
    bool fits; /* the scale */
} Channel;

/* Outputs of a channel next to each other. The weights of the first line's row are `turn` bytes behind those of row 0. */
typedef struct {
    uint32_t turn;
    int32_t count, pitch, stride;
} Stretch;

/* Three lines of inputs, MOST_PAIRS apart. */
typedef uint32_t Lines[ROWS][MOST_PAIRS];

/* The outputs of a channel whose scale fits. */
void neutron_depthwise_stretch_dsp(const Channel *channel, Lines *lines, uint8_t *out, const Stretch *stretch);

/* r0 and r1: sums of two outputs. r10, r11: two pairs of a row; r2, r12: its weights. r3: the channel's weights, r4: outputs to
 * go, r5: pitch, r6: pairs, r7: outputs, r8: multiplier, r9: shift, lr: rounding. On the stack: zero point, bias. */
#define OF_ROW(pairs, weights)            \
    "ldrd r10, r11, [r6, #" pairs "]\n\t" \
    "ldrd r2, r12, [r3, #" weights "]\n\t" \
    "smlad r0, r10, r2, r0\n\t"          \
    "smlabt r0, r11, r12, r0\n\t"

#define OF_NEXT                      \
    "smlatb r1, r10, r2, r1\n\t"     \
    "smlad r1, r11, r12, r1\n\t"

#define RESCALED(x)                      \
    "and r10, " x ", #0x80000000\n\t"    \
    "add r11, lr, " x ", asr #31\n\t"    \
    "add r10, r10, #0x40000000\n\t"     \
    "smlal r10, r11, " x ", r8\n\t"      \
    "asr r11, r11, r9\n\t"              \
    "add r11, r2\n\t"                   \
    "ssat r11, #8, r11\n\t"

__asm__(".section .text.neutron_depthwise_stretch_dsp, \"ax\", %progbits\n\t"
        ".syntax unified\n\t"
        ".thumb\n\t"
        ".thumb_func\n\t"
        ".global neutron_depthwise_stretch_dsp\n\t"
        ".type neutron_depthwise_stretch_dsp, %function\n"
        "neutron_depthwise_stretch_dsp:\n\t"
        "push {r4-r11, lr}\n\t"
        "ldm r3, {r3, r4, r5, r12}\n\t"
        "mov r6, r1\n\t"
        "mov r7, r2\n\t"
        "add r3, r0\n\t"
        "ldrd r8, lr, [r0, #40]\n\t"
        "ldrd r9, r10, [r0, #48]\n\t"
        "ldr r11, [r0, #56]\n\t"
        "push {r10, r11}\n\t"
        "cmp r12, #1\n\t"
        "bne 3f\n"
        "2:\n\t" /* two outputs */
        "ldr r0, [sp, #4]\n\t"
        "mov r1, r0\n\t"
        OF_ROW("0", "0") OF_NEXT OF_ROW("128", "8") OF_NEXT OF_ROW("256", "16") OF_NEXT
        "ldr r2, [sp]\n\t"
        "adds r6, #4\n\t"
        RESCALED("r0")
        "strb r11, [r7]\n\t"
        "subs r4, #1\n\t"
        "beq 4f\n\t"
        RESCALED("r1")
        "strb r11, [r7, r5]\n\t"
        "add r7, r7, r5, lsl #1\n\t"
        "subs r4, #1\n\t"
        "bne 2b\n\t"
        "b 4f\n"
        "3:\n\t" /* an output, and the next one two columns on */
        "ldr r0, [sp, #4]\n\t"
        OF_ROW("0", "0") OF_ROW("128", "8") OF_ROW("256", "16")
        "ldr r2, [sp]\n\t"
        "adds r6, #4\n\t"
        RESCALED("r0")
        "strb r11, [r7]\n\t"
        "add r7, r5\n\t"
        "subs r4, #1\n\t"
        "bne 3b\n"
        "4:\n\t"
        "pop {r1, r2, r4-r11, pc}\n\t"
        ".size neutron_depthwise_stretch_dsp, . - neutron_depthwise_stretch_dsp\n\t"
        ".text\n");

NEUTRON_STATIC_ASSERT(offsetof(Channel, scale) == 40 && offsetof(Channel, bias) == 56, "the assembly knows these places");
NEUTRON_STATIC_ASSERT(MOST_PAIRS * sizeof(uint32_t) == 128, "the assembly steps by so many bytes");

static inline int32_t half_of(const uint32_t *words, int32_t at) {
    int16_t half;
    memcpy(&half, (const uint8_t *)words + 2 * at, sizeof half);
    return half;
}

/* The same with any scale. */
NEUTRON_SMALL_RUN static void stretch_any(const Four *four, int32_t k, const Channel *channel, Lines *lines, uint8_t *out,
                                      const Stretch *stretch) {
    const uint32_t *const weights = channel->weights[0] + stretch->turn / sizeof(uint32_t);
    for (int32_t c = 0; c < stretch->count; c++, out += stretch->pitch) {
        uint32_t sum = (uint32_t)channel->bias;
        for (int32_t i = 0; i < ROWS; i++) {
            for (int32_t j = 0; j < ROWS; j++) {
                sum += (uint32_t)(half_of((*lines)[i], c * stretch->stride + j) * half_of(weights, 4 * i + j + j / 2));
            }
        }
        *out = stored_any(four, k, sum);
    }
}

/* Words of four channels in two columns next to each other as pairs of each channel, `pitch` apart. */
static NEUTRON_INLINE void put_pairs(uint32_t *to, size_t pitch, uint32_t first, uint32_t second) {
    const uint32_t even[2] = {neutron_even_bytes(first), neutron_even_bytes(second)};
    const uint32_t odd[2] = {neutron_odd_bytes(first), neutron_odd_bytes(second)};
    to[0] = (even[0] & UINT32_C(0xFFFF)) | even[1] << 16;
    to[pitch] = (odd[0] & UINT32_C(0xFFFF)) | odd[1] << 16;
    to[2 * pitch] = even[0] >> 16 | (even[1] & UINT32_C(0xFFFF0000));
    to[3 * pitch] = odd[0] >> 16 | (odd[1] & UINT32_C(0xFFFF0000));
}

static void prepare_channels(const Four *four, Channel *channels) {
    for (int32_t i = 0; i < 2 * ROWS - 1; i++) {
        const uint8_t *from = (const uint8_t *)four->packed + i % ROWS * ROWS * NEUTRON_LANES;
        for (int32_t j = 0; j < 2; j++, from += NEUTRON_LANES) {
            put_pairs(&channels->weights[i][j], sizeof *channels / sizeof(uint32_t), neutron_load_word(from),
                      neutron_load_word(from + NEUTRON_LANES));
        }
    }
    for (int32_t k = 0; k < FOUR; k++, channels++) {
        const int32_t multiplier = multiplier_of(four, k), shift = shift_of(four, k);
        channels->bias = four->table[k];
        channels->fits = four->p->single_rounding == 0 && neutron_dsp_scale_fits(multiplier, shift);
        if (channels->fits) channels->scale = neutron_dsp_scale(multiplier, shift, four->p->output_zero_point);
    }
}

/* The line of an input row, which may be above the input. */
static inline uint32_t line_of(int32_t row) { return ((uint32_t)row + ROWS * (UINT32_C(1) << 29)) % ROWS; }

/* Columns [col, col + 2 * pairs) of an input row to a line, as padding from `cols` on; `row` may be outside the input. */
static void lay_row(const Four *four, uint32_t *to, int32_t row, int32_t col, int32_t cols, int32_t pairs) {
    const NeutronBuffer *input = four->input;
    const int32_t pitch = input->col_pitch;
    const uint32_t padding = neutron_four_bytes(four->p->input_zero_point);
    if (row < 0 || row >= input->rows) row = cols = 0;
    const uint8_t *const line = four->plane + (ptrdiff_t)(row % input->ring) * input->row_pitch;
    const bool side_by_side = four->side_by_side;
    for (const uint32_t *const end = to + pairs; to != end; to++, col += 2) {
        uint32_t words[2] = {padding, padding};
        NEUTRON_UNROLL
        for (int32_t i = 0; i < 2; i++) {
            if (col + i < 0 || col + i >= cols) continue;
            const uint8_t *const from = line + (col + i) * pitch;
            words[i] = side_by_side ? neutron_load_word(from) : neutron_load_some_dsp(from, input->channel_pitch, four->count);
        }
        put_pairs(to, ROWS * MOST_PAIRS, words[0], words[1]);
    }
}

/* Outputs next to each other of all four channels. */
static void compute_stretch(const Four *four, const Channel *channel, Lines *lines, uint8_t *out, const Stretch *stretch) {
    const NeutronDepthwiseConv2dS8 *p = four->p;
    const bool bounded = p->clamp_min != INT8_MIN || p->clamp_max != INT8_MAX;
    for (int32_t k = 0; k < four->count; k++, channel++, lines++, out += four->output->channel_pitch) {
        if (channel->fits) {
            neutron_depthwise_stretch_dsp(channel, lines, out, stretch);
        } else {
            stretch_any(four, k, channel, lines, out, stretch);
        }
        uint8_t *at = out;
        for (int32_t c = stretch->count; c > 0 && bounded; c--, at += stretch->pitch) {
            *at = (uint8_t)neutron_bound((int8_t)*at, p->clamp_min, p->clamp_max);
        }
    }
}

/* All outputs of four channels. */
static __attribute__((noinline)) void compute_3x3(Four *four, int32_t n, int32_t channel) {
    const NeutronDepthwiseConv2dS8 *p = four->p;
    const NeutronWindowExtents *w = &four->call->window;
    Lines lines[FOUR];
    Channel channels[FOUR];
    Stretch stretch = {.pitch = four->output->col_pitch, .stride = p->stride_w};
    /* Outputs two columns apart begin with a pair each, those next to each other with a half of one; others are alone. */
    const int32_t most = p->stride_w == 1 ? 2 * MOST_PAIRS - 2 : p->stride_w == 2 ? MOST_PAIRS - 1 : 1;
    prepare_channels(four, channels);
    for (int32_t c = w->col0; c < w->col1; c += most) {
        stretch.count = w->col1 - c < most ? w->col1 - c : most;
        const int32_t pairs = (p->stride_w == 1 ? (stretch.count + 1) / 2 : stretch.count) + 1;
        const int32_t col = c * p->stride_w - p->pad_left;
        /* The input may hold no columns behind those of the last output. */
        int32_t cols = col + (stretch.count - 1) * p->stride_w + ROWS;
        if (cols > four->input->cols) cols = four->input->cols;
        int32_t laid = w->row0 * p->stride_h - p->pad_top;
        for (int32_t r = w->row0; r < w->row1; r++) {
            const int32_t row = r * p->stride_h - p->pad_top;
            if (laid < row) laid = row;
            for (; laid < row + ROWS; laid++) lay_row(four, lines[0][line_of(laid)], laid, col, cols, pairs);
            stretch.turn = (ROWS - line_of(row)) % ROWS * (uint32_t)sizeof channels->weights[0];
            compute_stretch(four, channels, lines, address_of(four, four->output, n, r, c, channel), &stretch);
        }
    }
}

#if NEUTRON_FAST_DSP
static bool is_3x3(const NeutronDepthwiseConv2dS8 *p) {
    return p->kernel_h == ROWS && p->kernel_w == ROWS && p->dilation_h == 1 && p->dilation_w == 1 && p->group_outputs == 1;
}
#endif

/* ---- calls ------------------------------------------------------------------------------------------------------------ */

/* All outputs of four channels of a batch. */
typedef void (*ComputeFour)(Four *four, int32_t n, int32_t channel);

static NEUTRON_INLINE void for_each_four(const NeutronKernelCall *call, ComputeFour compute) {
    const NeutronDepthwiseConv2dS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    Four four;
    four.call = call;
    four.p = p;
    four.input = &call->buffers[p->input];
    four.output = &call->buffers[p->output];
    for (int32_t n = w->batch0; n < w->batch1; n++) {
        for (int32_t k = w->channel0; k < w->channel1; k += FOUR) {
            const size_t at = (size_t)(k - p->constant_channel0), block = at / NEUTRON_LANES, lane = at % NEUTRON_LANES;
            four.count = w->channel1 - k < FOUR ? w->channel1 - k : FOUR;
            four.packed = neutron_packed_weights(call, p) + block * (size_t)(p->kernel_h * p->kernel_w) * NEUTRON_LANES + lane;
            four.table = neutron_requant_blocks(call, p)[block].bias + lane;
            four.plane = address_of(&four, four.input, n, 0, 0, k / p->group_outputs);
            four.side_by_side = four.count == FOUR && p->group_outputs == 1 && four.input->channel_pitch == 1;
            compute(&four, n, k);
        }
    }
}

static NEUTRON_INLINE void compute_four(Four *four, int32_t n, int32_t channel) {
    const NeutronWindowExtents *w = &four->call->window;
#if NEUTRON_FAST_DSP
    if (is_3x3(four->p)) {
        compute_3x3(four, n, channel);
        return;
    }
#endif
    prepare(four, channel);
    for (int32_t r = w->row0; r < w->row1; r++) compute_row(four, n, r, channel);
}

void depthwise_conv_2d_s8_run(const NeutronKernelCall *call) { for_each_four(call, compute_four); }

void depthwise_conv_2d_s8_run_3x3(const NeutronKernelCall *call) { for_each_four(call, compute_3x3); }

#endif
