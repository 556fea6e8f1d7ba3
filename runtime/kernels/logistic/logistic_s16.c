/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's LOGISTIC and TANH on int16 (reference/integer_ops/logistic.h, tanh.h): one table of the sigmoid's positive half,
 * 256 entries with 16 fractional bits, 1/24 apart; tanh(x) = 2 * sigmoid(2 * x) - 1. */
#include "one_operand_16.h"

enum { ENTRIES = 256, LOGISTIC_BITS = 9, TANH_BITS = 8 };

bool logistic_s16_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronLogisticS16 *p = params_block;
    /* With these bounds the product is below 2^31, and the half that is added to it 2^30 where the product is below that. */
    const bool numbers = p->multiplier >= 0 && p->multiplier <= (p->shift == 0 ? 65535 : 32767) && p->shift >= 0 &&
                         p->shift <= 31 && (p->tanh == 0 || p->tanh == 1);
    return numbers && neutron_range_is_sound(program, p->table_base, p->table_offset, ENTRIES * 2, 2) &&
           neutron_one_operand_is_sound(program, p->input, 2, p->output, 2, window);
}

typedef struct {
    int32_t multiplier, shift, half;
    const uint16_t *table;
} Numbers;

/* The sigmoid of a rescaled value's magnitude, `bits` of which are between two entries; as many more fractional bits. */
static NEUTRON_INLINE int32_t interpolated(uint32_t magnitude, const uint16_t *table, int32_t bits, int32_t most) {
    const uint32_t index = magnitude >> bits, kept = index < ENTRIES - 2 ? index : ENTRIES - 2;
    const uint32_t between = magnitude & ((UINT32_C(1) << bits) - 1u);
    const uint32_t step = (uint32_t)table[kept + 1] - table[kept];
    return index < ENTRIES - 1 ? (int32_t)(((uint32_t)table[kept] << bits) + between * step) : most;
}

static NEUTRON_INLINE int32_t rescaled(int16_t stored, const Numbers *p) {
    return (stored * p->multiplier + p->half) >> p->shift;
}

static NEUTRON_INLINE uint32_t magnitude_of(int32_t x) { return x < 0 ? 0u - (uint32_t)x : (uint32_t)x; }

static NEUTRON_INLINE void logistic_block(const void *numbers, const int16_t *in, int16_t *out, int32_t size) {
    const Numbers *p = numbers;
    for (int32_t i = 0; i < size; i++) {
        const int32_t x = rescaled(in[i], p);
        const int32_t value = interpolated(magnitude_of(x), p->table, LOGISTIC_BITS, 0x7FFF << 10);
        out[i] = (int16_t)((x >= 0 ? value + (1 << 9) : (1 << 25) - value + (1 << 9) - 1) >> 10);
    }
}

static NEUTRON_INLINE void tanh_block(const void *numbers, const int16_t *in, int16_t *out, int32_t size) {
    const Numbers *p = numbers;
    for (int32_t i = 0; i < size; i++) {
        const int32_t x = rescaled(in[i], p);
        const int32_t value = interpolated(magnitude_of(x), p->table, TANH_BITS, 0xFFFF << 8) - (1 << 23);
        out[i] = (int16_t)(((x >= 0 ? value : -value - 1) + (1 << 7)) >> 8);
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
