/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_integer_ops::AddFunc (integer_ops/add.h), and its quantized SUB (sub.h): there the scaled b is
 * subtracted, which is not the same as a multiplier of the other sign where a product lies halfway between two values. */
#include "elements.h"

bool add_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window);
void add_s8_run(const NeutronKernelCall *call);

bool add_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronAddS8 *p = params_block;
    /* With these bounds a scaled operand is below 2^28, and the sum below 2^29. */
    const bool operands = neutron_is_stored(p->a_zero_point) && neutron_is_stored(p->b_zero_point) &&
                          p->a_shift <= 0 && p->a_shift >= -31 && p->b_shift <= 0 && p->b_shift >= -31 &&
                          p->b_multiplier != INT32_MIN;
    const bool output = neutron_shift_is_sound(p->output_shift) && neutron_is_stored(p->output_zero_point) &&
                        neutron_is_stored(p->clamp_min) && neutron_is_stored(p->clamp_max);
    return operands && output && neutron_window_buffer(program, p->input_a, false, window) != NULL &&
           neutron_window_buffer(program, p->input_b, false, window) != NULL &&
           neutron_window_buffer(program, p->output, true, window) != NULL;
}

typedef struct {
    int32_t zero_point, multiplier_high, multiplier_low;
    NeutronRounding rounding;
} Operand;

static Operand operand(int32_t zero_point, int32_t multiplier, int32_t shift) {
    const Operand scaling = {zero_point, multiplier >> 11, multiplier & 2047, neutron_rounding(-shift)};
    return scaling;
}

/* The doubling high product of (value - zero point) * 2^20 and the multiplier, which is
 * floor((value - zero point) * multiplier / 2^11 + 1/2), without a product of more than 32 bits. */
static NEUTRON_INLINE int32_t scaled(int8_t stored, const Operand *operand) {
    const int32_t value = stored - operand->zero_point;
    const int32_t product = value * operand->multiplier_high + ((value * operand->multiplier_low + 1024) >> 11);
    return neutron_shift_rounding(product, operand->rounding);
}

typedef struct {
    Operand a, b;
    int32_t b_sign;
    int32_t output_multiplier, output_left;
    NeutronRounding output_rounding;
    int32_t output_zero_point, low, high; /* low and high are bounds before the zero point is added */
} Numbers;

static Numbers numbers_of(const NeutronAddS8 *p) {
    const Numbers numbers = {
        .a = operand(p->a_zero_point, p->a_multiplier, p->a_shift),
        .b = operand(p->b_zero_point, p->b_multiplier < 0 ? -p->b_multiplier : p->b_multiplier, p->b_shift),
        .b_sign = p->b_multiplier < 0 ? -1 : 1,
        .output_multiplier = p->output_multiplier,
        .output_left = p->output_shift > 0 ? p->output_shift : 0,
        .output_rounding = neutron_rounding(p->output_shift > 0 ? 0 : -p->output_shift),
        .output_zero_point = p->output_zero_point,
        .low = p->clamp_min - p->output_zero_point,
        .high = p->clamp_max - p->output_zero_point,
    };
    return numbers;
}

static NEUTRON_INLINE void add_block(const Numbers *p, const int8_t *a, const int8_t *b, int8_t *out, int32_t size) {
    for (int32_t i = 0; i < size; i++) {
        const uint32_t sum = (uint32_t)(scaled(a[i], &p->a) + scaled(b[i], &p->b) * p->b_sign) << p->output_left;
        const int32_t product = neutron_high_mul((int32_t)sum, p->output_multiplier);
        const int32_t rescaled = neutron_shift_rounding(product, p->output_rounding);
        out[i] = (int8_t)(neutron_bound(rescaled, p->low, p->high) + p->output_zero_point);
    }
}

typedef struct {
    const uint8_t *a, *b;
    uint8_t *out;
    int32_t a_pitch, b_pitch, out_pitch;
} Line;

static NEUTRON_INLINE int32_t add_blocks(const Numbers *p, const Line *line, int32_t done, int32_t length,
                                         const int32_t size) {
    int8_t a[NEUTRON_BLOCK], b[NEUTRON_BLOCK], out[NEUTRON_BLOCK];
    for (; done <= length - size; done += size) {
        neutron_load_block(a, line->a + (ptrdiff_t)done * line->a_pitch, line->a_pitch, size);
        neutron_load_block(b, line->b + (ptrdiff_t)done * line->b_pitch, line->b_pitch, size);
        add_block(p, a, b, out, size);
        neutron_store_block(line->out + (ptrdiff_t)done * line->out_pitch, line->out_pitch, out, size);
    }
    return done;
}

static NEUTRON_INLINE void add_window(const NeutronKernelCall *call) {
    const NeutronAddS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *a = &call->buffers[p->input_a], *b = &call->buffers[p->input_b];
    const NeutronBuffer *out = &call->buffers[p->output];
    const Numbers numbers = numbers_of(p);
    const int32_t channels = w->channel1 - w->channel0;
    int32_t cols = w->col1 - w->col0, length = channels;
    if (neutron_columns_join(a, channels) && neutron_columns_join(b, channels) && neutron_columns_join(out, channels) &&
        neutron_joined_length(cols, channels) > 0) {
        length = neutron_joined_length(cols, channels);
        cols = 1;
    }
    Line line = {.a_pitch = a->channel_pitch, .b_pitch = b->channel_pitch, .out_pitch = out->channel_pitch};
    for (int32_t n = w->batch0; n < w->batch1; n++) {
        for (int32_t r = w->row0; r < w->row1; r++) {
            line.a = neutron_element_address(call->bases, a, n, r, w->col0, w->channel0);
            line.b = neutron_element_address(call->bases, b, n, r, w->col0, w->channel0);
            line.out = neutron_element_address(call->bases, out, n, r, w->col0, w->channel0);
            for (int32_t c = 0; c < cols; c++) {
                int32_t done = 0;
                if (NEUTRON_BLOCK > 1) {
                    done = add_blocks(&numbers, &line, done, length, NEUTRON_BLOCK);
                    done = add_blocks(&numbers, &line, done, length, NEUTRON_SMALL_BLOCK);
                }
                add_blocks(&numbers, &line, done, length, 1);
                line.a += a->col_pitch;
                line.b += b->col_pitch;
                line.out += out->col_pitch;
            }
        }
    }
}

#ifdef NEUTRON_AVX2
NEUTRON_AVX2 static void add_window_avx2(const NeutronKernelCall *call) { add_window(call); }
#endif

void add_s8_run(const NeutronKernelCall *call) {
#ifdef NEUTRON_AVX2
    if (neutron_has_avx2()) {
        add_window_avx2(call);
        return;
    }
#endif
    add_window(call);
}
