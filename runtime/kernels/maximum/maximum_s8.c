/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's MAXIMUM and MINIMUM (reference/maximum_minimum.h), on stored values. */
#include "two_operands_dsp.h"
#include "two_operands.h"

bool maximum_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronMaximumS8 *p = params_block;
    return (p->smaller == 0 || p->smaller == 1) &&
           neutron_two_operands_are_sound(program, p->input_a, p->input_b, p->output, window);
}

#if NEUTRON_DSP

static void larger_words(const void *numbers, const uint8_t *a, const uint8_t *b, uint8_t *out, int32_t words) {
    (void)numbers;
    for (; words > 0; words--, a += 4, b += 4, out += 4) {
        neutron_store_word(out, neutron_max_bytes(neutron_load_word(a), neutron_load_word(b)));
    }
}

static void smaller_words(const void *numbers, const uint8_t *a, const uint8_t *b, uint8_t *out, int32_t words) {
    (void)numbers;
    for (; words > 0; words--, a += 4, b += 4, out += 4) {
        neutron_store_word(out, neutron_min_bytes(neutron_load_word(a), neutron_load_word(b)));
    }
}

void maximum_s8_run(const NeutronKernelCall *call) {
    const NeutronMaximumS8 *p = call->params;
    neutron_two_operands_dsp(call, p->input_a, p->input_b, p->output, NULL, p->smaller ? smaller_words : larger_words);
}

#else

NEUTRON_ROWS_OF_LARGER_AND_SMALLER(int8_t, NEUTRON_ROWS_OF_BLOCKS)

void maximum_s8_run(const NeutronKernelCall *call) {
    const NeutronMaximumS8 *p = call->params;
    const NeutronTwoOperandRun run = p->smaller ? NEUTRON_FASTEST(smaller_row) : NEUTRON_FASTEST(larger_row);
    neutron_for_each_row(call, p->input_a, p->input_b, p->output, NULL, run);
}

#endif
