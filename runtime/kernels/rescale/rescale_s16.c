/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's QUANTIZE from int16 to int16 (reference/requantize.h), and all of its functions that multiply a value by one
 * number where it is positive and by another where it is negative: RELU and its family, LEAKY_RELU, ABS. */
#include "two_operands_16.h"

bool rescale_s16_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronRescaleS16 *p = params_block;
    return neutron_shift_is_sound(p->positive_shift) && neutron_shift_is_sound(p->negative_shift) &&
           neutron_bounds_are_sound_16(p->clamp_min, p->clamp_max) &&
           neutron_one_operand_is_sound(program, p->input, 2, p->output, 2, window);
}

typedef struct {
    NeutronFactor positive, negative;
    int32_t low, high;
} Numbers;

static NEUTRON_INLINE void rescale_block(const void *numbers, const int16_t *in, int16_t *out, int32_t size) {
    const Numbers *p = numbers;
    for (int32_t i = 0; i < size; i++) {
        const int32_t positive = neutron_times(in[i], &p->positive), negative = neutron_times(in[i], &p->negative);
        out[i] = (int16_t)neutron_bound(in[i] < 0 ? negative : positive, p->low, p->high);
    }
}

NEUTRON_ROWS_OF_ONE(rescale, 2, 2)

void rescale_s16_run(const NeutronKernelCall *call) {
    const NeutronRescaleS16 *p = call->params;
    const Numbers numbers = {
        .positive = neutron_factor(p->positive_multiplier, p->positive_shift),
        .negative = neutron_factor(p->negative_multiplier, p->negative_shift),
        .low = p->clamp_min,
        .high = p->clamp_max,
    };
    neutron_for_each_row_of_one(call, p->input, p->output, &numbers, NEUTRON_FASTEST(rescale_row));
}
