/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's QUANTIZE from int8 to int16 (reference/requantize.h). */
#include "two_operands_16.h"

bool rescale_s8s16_check(const NeutronProgramView *program, const void *params_block,
                         const NeutronWindowExtents *window) {
    const NeutronRescaleS8s16 *p = params_block;
    return neutron_is_stored(p->input_zero_point) && neutron_shift_is_sound(p->output_shift) &&
           neutron_one_operand_is_sound(program, p->input, 1, p->output, 2, window);
}

typedef struct {
    NeutronFactor factor;
    int32_t zero_point;
} Numbers;

static NEUTRON_INLINE void widen_block(const void *numbers, const int16_t *in, int16_t *out, int32_t size) {
    const Numbers *p = numbers;
    for (int32_t i = 0; i < size; i++) {
        out[i] = (int16_t)neutron_bound(neutron_times(in[i] - p->zero_point, &p->factor), INT16_MIN, INT16_MAX);
    }
}

NEUTRON_ROWS_OF_ONE(widen, 1, 2)

void rescale_s8s16_run(const NeutronKernelCall *call) {
    const NeutronRescaleS8s16 *p = call->params;
    const Numbers numbers = {neutron_factor(p->output_multiplier, p->output_shift), p->input_zero_point};
    neutron_for_each_row_of_one(call, p->input, p->output, &numbers, NEUTRON_FASTEST(widen_row));
}
