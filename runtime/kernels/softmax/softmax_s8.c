/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's fixed-point reference softmax (reference/softmax.h), with its exponential taken from a table: an int8 operand
 * has only 256 differences from the largest value. Probabilities have 8 fractional bits, or 16 that are requantized as
 * LiteRT does it with SOFTMAX from int8 to int16 and QUANTIZE from int16 to int8. */
#include "softmax.h"

/* The bound of the left shift of a probability of 16 fractional bits, which keeps the product below 2^25. */
enum { LARGEST_SHIFT = 9 };

bool softmax_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronSoftmaxS8 *p = params_block;
    return softmax_tensors_are_sound(program, p->input, p->output, p->channels, window) &&
           softmax_table_is_sound(program, p->exp_base, p->exp_offset, p->exp_count, 4) && p->multiplier >= 0 &&
           p->shift >= -31 && p->shift <= LARGEST_SHIFT && p->output_zero_point >= INT8_MIN &&
           p->output_zero_point <= INT8_MAX;
}

NEUTRON_SMALL_RUN void softmax_s8_run(const NeutronKernelCall *call) {
    const NeutronSoftmaxS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const int32_t *table = (const int32_t *)(const void *)(neutron_base_address(call->bases, p->exp_base) + p->exp_offset);
    const ptrdiff_t in_pitch = in->channel_pitch, out_pitch = out->channel_pitch;
    const uint32_t count = (uint32_t)p->exp_count;
    /* With vector instructions it is fastest to divide all there are, else only where the row is longer. */
    const bool own_scale = p->multiplier != 0;
    const bool all = own_scale || NEUTRON_BLOCK > 1 || w->channel1 - w->channel0 >= p->exp_count;
    const uint8_t nothing = own_scale ? (uint8_t)p->output_zero_point : 0x80u;
    const SoftmaxScale *scale = (const SoftmaxScale *)&p->multiplier;
    uint8_t results[256];
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        NEUTRON_FOR_EACH_COLUMN(call, in, out, n, r, at) {
            const int32_t largest = softmax_largest(at.from, in_pitch, in->channels);
            int64_t sum = 0;
            for (int32_t k = 0; k < in->channels; k++) {
                const uint32_t difference = (uint32_t)(largest - (int8_t)at.from[k * in_pitch]);
                if (difference < count) sum += neutron_rounding_shift_right(table[difference], SUM_INTEGER_BITS);
            }
            const SoftmaxDivision by = softmax_division_by(sum, own_scale ? 16 : 8);
            for (uint32_t i = 0; i < count && own_scale; i++) {
                results[i] = softmax_rescaled(table[i], by, scale);
            }
            for (uint32_t i = 0; i < count && all && !own_scale; i++) results[i] = softmax_divided(table[i], by);
            const uint8_t *value = at.from + (ptrdiff_t)w->channel0 * in_pitch;
            uint8_t *place = at.to;
            for (int32_t k = w->channel0; k < w->channel1; k++, value += in_pitch, place += out_pitch) {
                /* Unsigned: an output that overlaps its input may have put something larger there meanwhile. */
                const uint32_t difference = (uint32_t)(largest - (int8_t)*value);
                uint8_t result = nothing;
                if (difference < count) result = all ? results[difference] : softmax_divided(table[difference], by);
                *place = result;
            }
        }
    }
}
