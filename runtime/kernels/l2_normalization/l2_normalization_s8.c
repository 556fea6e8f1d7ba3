/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's fixed-point reference L2 normalization (reference/integer_ops/l2normalization.h): each line of channels divided by
 * the root of the sum of its squares, in steps of 1/128. */
#include "elements.h"
#include "inverse_root.h"
#include "softmax.h"

bool l2_normalization_s8_check(const NeutronProgramView *program, const void *params_block,
                               const NeutronWindowExtents *window) {
    const NeutronL2NormalizationS8 *p = params_block;
    return softmax_tensors_are_sound(program, p->input, p->output, p->channels, window) &&
           neutron_is_stored(p->input_zero_point);
}

/* Bits behind the point of a result. */
enum { RESULT_BITS = 7 };

void l2_normalization_s8_run(const NeutronKernelCall *call) {
    const NeutronL2NormalizationS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const ptrdiff_t in_pitch = in->channel_pitch, out_pitch = out->channel_pitch;
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        NEUTRON_FOR_EACH_COLUMN(call, in, out, n, r, at) {
            int64_t sum = 0;
            for (int32_t k = 0; k < in->channels; k++) {
                const int32_t value = (int8_t)at.from[k * in_pitch] - p->input_zero_point;
                sum += value * value;
            }
            int32_t shift;
            const int32_t multiplier = neutron_inverse_root(sum > INT32_MAX ? INT32_MAX : (int32_t)sum, &shift);
            for (int32_t k = w->channel0; k < w->channel1; k++) {
                const int32_t value = (int8_t)at.from[k * in_pitch] - p->input_zero_point;
                const int32_t result = neutron_requantize(value, multiplier, shift + RESULT_BITS);
                at.to[(k - w->channel0) * out_pitch] = (uint8_t)neutron_bound(result, INT8_MIN, INT8_MAX);
            }
        }
    }
}
