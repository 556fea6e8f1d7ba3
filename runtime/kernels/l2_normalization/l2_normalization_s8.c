/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's fixed-point reference L2 normalization (reference/integer_ops/l2normalization.h): each line of channels divided by
 * the root of the sum of its squares, in steps of 1/128. */
#include "elements.h"
#include "softmax.h"

bool l2_normalization_s8_check(const NeutronProgramView *program, const void *params_block,
                               const NeutronWindowExtents *window) {
    const NeutronL2NormalizationS8 *p = params_block;
    return softmax_tensors_are_sound(program, p->input, p->output, p->channels, window) &&
           neutron_is_stored(p->input_zero_point);
}

/* 1 / sqrt(x) of x >= 0 as a multiplier with 31 fractional bits and the shift that goes with it: LiteRT's
 * GetInvSqrtQuantizedMultiplierExp, five steps of Newton's iteration with 3 integer bits. 0 counts as 1. */
static int32_t inverse_root(int32_t x, int32_t *shift) {
    const int32_t half_three = INT32_C(3) << 27, root_of_half = 1518500250;
    *shift = 0;
    if (x <= 1) return INT32_MAX;
    int32_t right = 11;
    for (; x >= INT32_C(1) << 29; right++) x /= 4;
    const int32_t pairs = (softmax_leading_zeros((uint32_t)x) - 1) / 2 - 1;
    right -= pairs;
    const int32_t half_input = neutron_rounding_shift_right((int32_t)((uint32_t)x << (2 * pairs) >> 1), 1);
    int32_t root = INT32_C(1) << 28;
    for (int32_t i = 0; i < 5; i++) {
        const int32_t cubed = softmax_scaled_up(neutron_high_mul(neutron_high_mul(root, root), root), 6);
        root = softmax_scaled_up(neutron_high_mul(half_three, root) - neutron_high_mul(half_input, cubed), 3);
    }
    root = neutron_high_mul(root, root_of_half);
    if (right < 0) return (int32_t)((uint32_t)root << -right);
    *shift = -right;
    return root;
}

/* Bits behind the point of a result. */
enum { RESULT_BITS = 7 };

void l2_normalization_s8_run(const NeutronKernelCall *call) {
    const NeutronL2NormalizationS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const ptrdiff_t in_pitch = in->channel_pitch, out_pitch = out->channel_pitch;
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        const uint8_t *from = neutron_element_address(call->bases, in, n, r, w->col0, 0);
        uint8_t *to = neutron_element_address(call->bases, out, n, r, w->col0, w->channel0);
        for (int32_t c = w->col0; c < w->col1; c++) {
            int64_t sum = 0;
            for (int32_t k = 0; k < in->channels; k++) {
                const int32_t value = (int8_t)from[k * in_pitch] - p->input_zero_point;
                sum += value * value;
            }
            int32_t shift;
            const int32_t multiplier = inverse_root(sum > INT32_MAX ? INT32_MAX : (int32_t)sum, &shift);
            for (int32_t k = w->channel0; k < w->channel1; k++) {
                const int32_t value = (int8_t)from[k * in_pitch] - p->input_zero_point;
                const int32_t result = neutron_requantize(value, multiplier, shift + RESULT_BITS);
                to[(k - w->channel0) * out_pitch] = (uint8_t)neutron_bound(result, INT8_MIN, INT8_MAX);
            }
            from += in->col_pitch;
            to += out->col_pitch;
        }
    }
}
