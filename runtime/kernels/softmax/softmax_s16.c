/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's softmax on int16 (reference/softmax.h: SoftmaxInt16): exponentials and the reciprocal of their sum by tables. */
#include "lookup_16.h"

/* Exponentials whose sum LiteRT's 32 bits hold. */
enum { MOST_CHANNELS = 65536 };

bool softmax_s16_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronSoftmaxS16 *p = params_block;
    return p->channels <= MOST_CHANNELS && neutron_shift_is_sound(p->shift) &&
           neutron_table_16_is_sound(program, p->exp_base, p->exp_offset) &&
           neutron_table_16_is_sound(program, p->reciprocal_base, p->reciprocal_offset) &&
           neutron_lines_are_sound(program, p->input, p->output, p->channels, window, 2);
}

static inline const int16_t *table_at(const NeutronKernelCall *call, uint32_t base, uint32_t offset) {
    return (const int16_t *)(const void *)(neutron_base_address(call->bases, base) + offset);
}

/* The exponential of a difference of 0 or below: -65535 stands for -10, and anything below for that. */
static NEUTRON_INLINE int32_t exponential(int32_t difference, const NeutronFactor *factor, const int16_t *table) {
    /* An output that overlaps its input may have put something larger there meanwhile. */
    const int32_t scaled = neutron_times(difference < 0 ? difference : 0, factor);
    return neutron_look_up_16(table, (int16_t)(neutron_bound(scaled, INT16_MIN - INT16_MAX, 0) + INT16_MAX));
}

void softmax_s16_run(const NeutronKernelCall *call) {
    const NeutronSoftmaxS16 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const int16_t *exponentials = table_at(call, p->exp_base, p->exp_offset);
    const int16_t *reciprocals = table_at(call, p->reciprocal_base, p->reciprocal_offset);
    const NeutronFactor factor = neutron_factor(p->multiplier, p->shift);
    const ptrdiff_t pitch = in->channel_pitch;
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        NEUTRON_FOR_EACH_COLUMN(call, in, out, n, r, at) {
            int32_t largest = INT16_MIN;
            for (int32_t k = 0; k < p->channels; k++) {
                const int32_t value = neutron_load_16(at.from + k * pitch);
                largest = value > largest ? value : largest;
            }
            int64_t sum = 0;
            for (int32_t k = 0; k < p->channels; k++) {
                sum += exponential(neutron_load_16(at.from + k * pitch) - largest, &factor, exponentials);
            }
            /* LiteRT's tables make a sum of at least 2^14, as the largest value's exponential is 1. */
            const uint32_t bounded = sum < 1 << 14 ? UINT32_C(1) << 14 : (uint32_t)sum;
            const int32_t zeros = __builtin_clz(bounded), right = 31 - zeros;
            /* Of the sum as 1 + x, 0 <= x < 1: x with 16 fractional bits, less 2^15. */
            const int32_t above_one = (int32_t)((((uint64_t)bounded << (zeros - 1)) + (1 << 13)) >> 14) - (1 << 16) - (1 << 15);
            const int32_t reciprocal = neutron_look_up_16(reciprocals, (int16_t)neutron_bound(above_one, INT16_MIN, INT16_MAX));
            for (int32_t k = w->channel0; k < w->channel1; k++) {
                const int32_t part = exponential(neutron_load_16(at.from + k * pitch) - largest, &factor, exponentials);
                const int32_t result = (int32_t)(((int64_t)part * reciprocal + (INT64_C(1) << (right - 1))) >> right);
                neutron_store_16(at.to + (ptrdiff_t)(k - w->channel0) * out->channel_pitch, (int16_t)neutron_bound(result, 0, INT16_MAX));
            }
        }
    }
}
