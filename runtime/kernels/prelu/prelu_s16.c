/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's PRELU on int16 with int8 slopes (reference/prelu.h). */
#include "two_operands_16.h"

bool prelu_s16_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronPreluS16 *p = params_block;
    return neutron_is_stored(p->b_zero_point) && neutron_shift_is_sound(p->positive_shift) &&
           neutron_shift_is_sound(p->negative_shift) &&
           neutron_window_elements(program, p->input_a, false, window, 2) != NULL &&
           neutron_window_elements(program, p->input_b, false, window, 1) != NULL &&
           neutron_window_elements(program, p->output, true, window, 2) != NULL;
}

typedef struct {
    int32_t b_zero_point;
    NeutronFactor positive, negative;
} Numbers;

static NEUTRON_INLINE void prelu_block(const void *numbers, const int16_t *a, const int16_t *b, int16_t *out,
                                       int32_t size) {
    const Numbers *p = numbers;
    for (int32_t i = 0; i < size; i++) {
        const int32_t positive = neutron_times(a[i], &p->positive);
        const int32_t negative = neutron_times(a[i] * (b[i] - p->b_zero_point), &p->negative);
        out[i] = (int16_t)neutron_bound(a[i] >= 0 ? positive : negative, INT16_MIN, INT16_MAX);
    }
}

NEUTRON_ROWS_OF_BLOCKS_OF(prelu, 1, 2)

void prelu_s16_run(const NeutronKernelCall *call) {
    const NeutronPreluS16 *p = call->params;
    const Numbers numbers = {
        .b_zero_point = p->b_zero_point,
        .positive = neutron_factor(p->positive_multiplier, p->positive_shift),
        .negative = neutron_factor(p->negative_multiplier, p->negative_shift),
    };
    neutron_for_each_row(call, p->input_a, p->input_b, p->output, &numbers, NEUTRON_FASTEST(prelu_row));
}
