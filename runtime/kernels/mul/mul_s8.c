/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_integer_ops::MulElementwise (integer_ops/mul.h). */
#include "elements.h"

bool mul_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window);
void mul_s8_run(const NeutronKernelCall *call);

bool mul_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronMulS8 *p = params_block;
    const bool numbers = neutron_is_stored(p->a_zero_point) && neutron_is_stored(p->b_zero_point) &&
                         neutron_shift_is_sound(p->output_shift) && neutron_is_stored(p->output_zero_point) &&
                         neutron_is_stored(p->clamp_min) && neutron_is_stored(p->clamp_max);
    return numbers && neutron_window_buffer(program, p->input_a, false, window) != NULL &&
           neutron_window_buffer(program, p->input_b, false, window) != NULL &&
           neutron_window_buffer(program, p->output, true, window) != NULL;
}

typedef struct {
    int32_t a_zero_point, b_zero_point, multiplier, left;
    NeutronRounding rounding;
    int32_t output_zero_point, low, high; /* low and high are bounds before the zero point is added */
} Numbers;

static NEUTRON_INLINE void mul_block(const Numbers *p, const int8_t *a, const int8_t *b, int8_t *out, int32_t size) {
    for (int32_t i = 0; i < size; i++) {
        const uint32_t product = (uint32_t)((a[i] - p->a_zero_point) * (b[i] - p->b_zero_point)) << p->left;
        const int32_t rescaled = neutron_shift_rounding(neutron_high_mul((int32_t)product, p->multiplier), p->rounding);
        out[i] = (int8_t)(neutron_bound(rescaled, p->low, p->high) + p->output_zero_point);
    }
}

typedef struct {
    const uint8_t *a, *b;
    uint8_t *out;
    int32_t a_pitch, b_pitch, out_pitch;
} Line;

static NEUTRON_INLINE int32_t mul_blocks(const Numbers *p, const Line *line, int32_t done, int32_t length,
                                         const int32_t size) {
    int8_t a[NEUTRON_BLOCK], b[NEUTRON_BLOCK], out[NEUTRON_BLOCK];
    for (; done <= length - size; done += size) {
        neutron_load_block(a, line->a + (ptrdiff_t)done * line->a_pitch, line->a_pitch, size);
        neutron_load_block(b, line->b + (ptrdiff_t)done * line->b_pitch, line->b_pitch, size);
        mul_block(p, a, b, out, size);
        neutron_store_block(line->out + (ptrdiff_t)done * line->out_pitch, line->out_pitch, out, size);
    }
    return done;
}

static NEUTRON_INLINE void mul_window(const NeutronKernelCall *call) {
    const NeutronMulS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *a = &call->buffers[p->input_a], *b = &call->buffers[p->input_b];
    const NeutronBuffer *out = &call->buffers[p->output];
    const Numbers numbers = {
        .a_zero_point = p->a_zero_point,
        .b_zero_point = p->b_zero_point,
        .multiplier = p->output_multiplier,
        .left = p->output_shift > 0 ? p->output_shift : 0,
        .rounding = neutron_rounding(p->output_shift > 0 ? 0 : -p->output_shift),
        .output_zero_point = p->output_zero_point,
        .low = p->clamp_min - p->output_zero_point,
        .high = p->clamp_max - p->output_zero_point,
    };
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
                    done = mul_blocks(&numbers, &line, done, length, NEUTRON_BLOCK);
                    done = mul_blocks(&numbers, &line, done, length, NEUTRON_SMALL_BLOCK);
                }
                mul_blocks(&numbers, &line, done, length, 1);
                line.a += a->col_pitch;
                line.b += b->col_pitch;
                line.out += out->col_pitch;
            }
        }
    }
}

#ifdef NEUTRON_AVX2
NEUTRON_AVX2 static void mul_window_avx2(const NeutronKernelCall *call) { mul_window(call); }
#endif

void mul_s8_run(const NeutronKernelCall *call) {
#ifdef NEUTRON_AVX2
    if (neutron_has_avx2()) {
        mul_window_avx2(call);
        return;
    }
#endif
    mul_window(call);
}
