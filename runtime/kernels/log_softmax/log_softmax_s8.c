/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's fixed-point reference log_softmax (reference/integer_ops/log_softmax.h), with its exponentials and rescaled
 * differences taken from a table: an int8 operand has only 256 differences from the largest value. */
#include "elements.h"
#include "softmax.h"

bool log_softmax_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronLogSoftmaxS8 *p = params_block;
    return softmax_tensors_are_sound(program, p->input, p->output, p->channels, window) &&
           softmax_table_is_sound(program, p->table_base, p->table_offset, p->table_count, 8);
}

/* Bits before the point: of rescaled differences and of the logarithm, and of what the logarithm is summed up in. */
enum { DIFFERENCE_INTEGER_BITS = 5, LOG_INTEGER_BITS = DIFFERENCE_INTEGER_BITS + 1 };

/* ln(x) with 5 integer bits, of x with 12: TensorFlow Lite's log_x_for_x_greater_than_or_equal_to_1 (kernels/internal/
 * common.h). x is r * 2^n, with n in halves so that r is near 2^(-1/4); a rational function of r gives the rest. */
static int32_t logarithm(int32_t x) {
    const int32_t root_of_half = 1518500250, fourth_root_of_half = 1805811301, ln_2 = 1488522236;
    const int32_t quarter = INT32_C(1) << (31 - LOG_INTEGER_BITS - 2), unit = INT32_C(1) << (31 - LOG_INTEGER_BITS);
    const int32_t zeros = softmax_leading_zeros((uint32_t)x);
    const int32_t r_a = softmax_scaled_up(neutron_doubling_high_mul(softmax_scaled_up(x, zeros - 1), root_of_half), 1);
    const int32_t n_a = (SUM_INTEGER_BITS - zeros) * unit + quarter;
    const int32_t headroom = softmax_leading_zeros((uint32_t)neutron_doubling_high_mul(x, root_of_half)) - 1;
    const int32_t r_b = softmax_scaled_up(x, headroom);
    const int32_t n_b = (SUM_INTEGER_BITS - headroom) * unit - quarter;
    const int32_t r = r_a < r_b ? r_a : r_b, n = n_a > n_b ? n_a : n_b;

    const int32_t p = (int32_t)(((int64_t)r + fourth_root_of_half + 1) / 2);
    const int32_t q = (r - fourth_root_of_half) * 2;
    const int32_t q2 = neutron_doubling_high_mul(q, q);
    /* The coefficients are 11/240, 1/20 and 1/4 times 2^(1/4), and 2^(3/4) - 2^(1/4). */
    const int32_t numerator = neutron_doubling_high_mul(q, r) +
                              neutron_doubling_high_mul(neutron_doubling_high_mul(q, q2), 117049297);
    const int32_t inner = 1057819769 + q + neutron_doubling_high_mul(127690142, q2);
    const int32_t denominator = neutron_doubling_high_mul(p, inner) + neutron_doubling_high_mul(638450708, q);
    const int32_t reciprocal = softmax_reciprocal_above_one(denominator);
    const int32_t fraction = neutron_doubling_high_mul(neutron_rounding_shift_right(numerator, LOG_INTEGER_BITS), reciprocal);
    return softmax_scaled_up(neutron_doubling_high_mul(n, ln_2) + fraction, 1);
}

/* A difference less the logarithm, in steps of 1/16 from the zero point 127; ties away from 0. */
static uint8_t result_of(int64_t value) {
    enum { SHIFT = 31 - DIFFERENCE_INTEGER_BITS - 4 };
    const int64_t mask = (INT64_C(1) << SHIFT) - 1;
    const int64_t steps = (value >> SHIFT) + ((value & mask) > (mask >> 1) + (value < 0 ? 1 : 0) ? 1 : 0) + 127;
    return (uint8_t)(int8_t)(steps < INT8_MIN ? INT8_MIN : (steps > INT8_MAX ? INT8_MAX : steps));
}

void log_softmax_s8_run(const NeutronKernelCall *call) {
    const NeutronLogSoftmaxS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const uint32_t count = (uint32_t)p->table_count;
    const uint8_t *table = neutron_base_address(call->bases, p->table_base) + p->table_offset;
    const int32_t *exponentials = (const int32_t *)(const void *)table, *differences = exponentials + count;
    const ptrdiff_t in_pitch = in->channel_pitch, out_pitch = out->channel_pitch;
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        NEUTRON_FOR_EACH_COLUMN(call, in, out, n, r, at) {
            const int32_t largest = softmax_largest(at.from, in_pitch, in->channels);
            int64_t sum = 0;
            for (int32_t k = 0; k < in->channels; k++) {
                const uint32_t difference = (uint32_t)(largest - (int8_t)at.from[k * in_pitch]);
                if (difference < count) sum += exponentials[difference];
            }
            const int32_t log = logarithm(sum < 1 ? 1 : (sum > INT32_MAX ? INT32_MAX : (int32_t)sum));
            for (int32_t k = w->channel0; k < w->channel1; k++) {
                /* Unsigned: an output that overlaps its input may have put something larger there meanwhile. */
                const uint32_t difference = (uint32_t)(largest - (int8_t)at.from[k * in_pitch]);
                uint8_t result = 0x80u;
                if (difference < count) result = result_of((int64_t)differences[difference] - log);
                at.to[(k - w->channel0) * out_pitch] = result;
            }
        }
    }
}
