/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's QUANTIZE from int16 to int8 (reference/requantize.h). */
#include "two_operands_16.h"

bool rescale_s16s8_check(const NeutronProgramView *program, const void *params_block,
                         const NeutronWindowExtents *window) {
    const NeutronRescaleS16s8 *p = params_block;
    return neutron_is_stored(p->output_zero_point) && neutron_shift_is_sound(p->output_shift) &&
           neutron_bounds_are_sound(p->clamp_min, p->clamp_max) &&
           neutron_one_operand_is_sound(program, p->input, 2, p->output, 1, window);
}

typedef struct {
    NeutronFactor factor;
    int32_t zero_point, low, high; /* the bounds are of what the zero point is added to */
} Numbers;

static NEUTRON_INLINE void narrow_block(const void *numbers, const int16_t *in, int16_t *out, int32_t size) {
    const Numbers *p = numbers;
    for (int32_t i = 0; i < size; i++) {
        out[i] = (int16_t)(neutron_bound(neutron_times(in[i], &p->factor), p->low, p->high) + p->zero_point);
    }
}

NEUTRON_ROWS_OF_ONE(narrow, 2, 1)

void rescale_s16s8_run(const NeutronKernelCall *call) {
    const NeutronRescaleS16s8 *p = call->params;
    const Numbers numbers = {
        .factor = neutron_factor(p->output_multiplier, p->output_shift),
        .zero_point = p->output_zero_point,
        .low = p->clamp_min - p->output_zero_point,
        .high = p->clamp_max - p->output_zero_point,
    };
    neutron_for_each_row_of_one(call, p->input, p->output, &numbers, NEUTRON_FASTEST(narrow_row));
}
