/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's fixed-point reference softmax (reference/softmax.h), with its exponential taken from a table: an int8 operand
 * has only 256 differences from the largest value. */
#include "elements.h"

bool softmax_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window);
void softmax_s8_run(const NeutronKernelCall *call);

bool softmax_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronSoftmaxS8 *p = params_block;
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    const NeutronBuffer *out = neutron_window_buffer(program, p->output, true, window);
    if (in == NULL || out == NULL || p->channels != in->channels || p->channels != out->channels) return false;
    return window->batch1 <= in->batches && window->row1 <= in->rows &&
           neutron_buffer_holds(in, window->col0, window->col1, 0, in->channels) && p->exp_count >= 1 &&
           p->exp_count <= 256 &&
           neutron_range_is_sound(program, p->exp_base, p->exp_offset, (uint64_t)p->exp_count * 4, 4);
}

/* Bits before the point of the sum of exponentials; the exponentials have none. */
enum { SUM_INTEGER_BITS = 12 };

static int32_t leading_zeros(uint32_t x) {
    int32_t count = 0;
    for (; x < UINT32_C(1) << 31; x <<= 1) count++;
    return count;
}

/* 1 / (1 + x) for x in [0, 1), both with 31 fractional bits: three Newton-Raphson steps with 2 integer bits (gemmlowp's
 * one_over_one_plus_x_for_x_in_0_1). */
static int32_t one_over_one_plus(int32_t x) {
    const int32_t one = INT32_C(1) << 29;
    const int32_t half_denominator = (int32_t)(((int64_t)x + INT32_MAX + 1) / 2);
    int32_t y = 1515870810 + neutron_high_mul(half_denominator, -1010580540); /* 48/17 - 32/17 * d */
    for (int32_t i = 0; i < 3; i++) {
        const int32_t error = one - neutron_high_mul(half_denominator, y);
        y += neutron_high_mul(y, error) * 4;
    }
    /* y stands for 2 / (1 + x); half of it has 1 integer bit, and becomes a number with none. */
    return y > (INT32_C(1) << 30) - 1 ? INT32_MAX : y * 2;
}

static int32_t largest_of(const uint8_t *from, ptrdiff_t pitch, int32_t count) {
    int8_t largest = INT8_MIN;
    if (pitch == 1) {
        for (int32_t k = 0; k < count; k++) largest = (int8_t)from[k] > largest ? (int8_t)from[k] : largest;
    } else {
        for (int32_t k = 0; k < count; k++) {
            const int8_t value = (int8_t)from[k * pitch];
            largest = value > largest ? value : largest;
        }
    }
    return largest;
}

/* Each difference's result, from the sum of all exponentials. */
static void divide(uint8_t *results, const int32_t *table, int32_t count, int64_t sum) {
    /* LiteRT gives up at 512 times the largest exponential; a sum that large makes every result 0. */
    const uint32_t bounded = sum < 1 ? 1 : (sum > INT32_MAX ? INT32_MAX : (uint32_t)sum);
    const int32_t headroom = leading_zeros(bounded);
    const int32_t scale = one_over_one_plus((int32_t)((bounded << headroom) - (UINT32_C(1) << 31)));
    const int32_t exponent = SUM_INTEGER_BITS - headroom + 31 - 8;
    for (int32_t i = 0; i < count; i++) {
        const int32_t product = neutron_high_mul(scale, table[i]);
        const int32_t result = exponent > 31 ? 0 : neutron_rounding_shift_right(product, exponent);
        results[i] = (uint8_t)(neutron_bound(result, 0, 255) + INT8_MIN);
    }
}

void softmax_s8_run(const NeutronKernelCall *call) {
    const NeutronSoftmaxS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const int32_t *table = (const int32_t *)(const void *)(neutron_base_address(call->bases, p->exp_base) + p->exp_offset);
    const ptrdiff_t in_pitch = in->channel_pitch, out_pitch = out->channel_pitch;
    const uint32_t count = (uint32_t)p->exp_count;
    uint8_t results[256];
    for (int32_t n = w->batch0; n < w->batch1; n++) {
        for (int32_t r = w->row0; r < w->row1; r++) {
            const uint8_t *from = neutron_element_address(call->bases, in, n, r, w->col0, 0);
            uint8_t *to = neutron_element_address(call->bases, out, n, r, w->col0, w->channel0);
            for (int32_t c = w->col0; c < w->col1; c++) {
                const int32_t largest = largest_of(from, in_pitch, in->channels);
                int64_t sum = 0;
                for (int32_t k = 0; k < in->channels; k++) {
                    const uint32_t difference = (uint32_t)(largest - (int8_t)from[k * in_pitch]);
                    if (difference < count) sum += neutron_rounding_shift_right(table[difference], SUM_INTEGER_BITS);
                }
                divide(results, table, p->exp_count, sum);
                for (int32_t k = w->channel0; k < w->channel1; k++) {
                    /* Unsigned: an output that overlaps its input may have put something larger there meanwhile. */
                    const uint32_t difference = (uint32_t)(largest - (int8_t)from[k * in_pitch]);
                    to[(k - w->channel0) * out_pitch] = difference < count ? results[difference] : 0x80u;
                }
                from += in->col_pitch;
                to += out->col_pitch;
            }
        }
    }
}
