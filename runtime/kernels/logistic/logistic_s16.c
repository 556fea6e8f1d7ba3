/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's LOGISTIC and TANH on int16 (reference/integer_ops/logistic.h, tanh.h). */
#include "logistic_16.h"
#include "two_operands_16.h"

bool logistic_s16_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronLogisticS16 *p = params_block;
    /* With these bounds the product is below 2^31, and the half that is added to it 2^30 where the product is below that. */
    const bool numbers = p->multiplier >= 0 && p->multiplier <= (p->shift == 0 ? 65535 : 32767) && p->shift >= 0 &&
                         p->shift <= 31 && (p->tanh == 0 || p->tanh == 1);
    return numbers && neutron_range_is_sound(program, p->table_base, p->table_offset, NEUTRON_SIGMOID_BYTES, 2) &&
           neutron_one_operand_is_sound(program, p->input, 2, p->output, 2, window);
}

typedef struct {
    int32_t multiplier, shift, half;
    const uint16_t *table;
} Numbers;

static NEUTRON_INLINE int32_t rescaled(int16_t stored, const Numbers *p) {
    return (stored * p->multiplier + p->half) >> p->shift;
}

static NEUTRON_INLINE void logistic_block(const void *numbers, const int16_t *in, int16_t *out, int32_t size) {
    const Numbers *p = numbers;
    for (int32_t i = 0; i < size; i++) {
        out[i] = neutron_table_logistic_16(rescaled(in[i], p), p->table);
    }
}

static NEUTRON_INLINE void tanh_block(const void *numbers, const int16_t *in, int16_t *out, int32_t size) {
    const Numbers *p = numbers;
    for (int32_t i = 0; i < size; i++) {
        out[i] = neutron_table_tanh_16(rescaled(in[i], p), p->table);
    }
}

NEUTRON_ROWS_OF_ONE(logistic, 2, 2)
NEUTRON_ROWS_OF_ONE(tanh, 2, 2)

void logistic_s16_run(const NeutronKernelCall *call) {
    const NeutronLogisticS16 *p = call->params;
    const Numbers numbers = {
        .multiplier = p->multiplier,
        .shift = p->shift,
        .half = p->shift > 0 ? (int32_t)(UINT32_C(1) << (p->shift - 1)) : 0,
        .table = (const uint16_t *)(const void *)(neutron_base_address(call->bases, p->table_base) + p->table_offset),
    };
    const NeutronTwoOperandRun run = p->tanh ? NEUTRON_FASTEST(tanh_row) : NEUTRON_FASTEST(logistic_row);
    neutron_for_each_row_of_one(call, p->input, p->output, &numbers, run);
}
