/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's MAXIMUM and MINIMUM (reference/maximum_minimum.h), on stored values. */
#include "two_operands.h"
#include "two_operands_dsp.h"

bool maximum_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronMaximumS8 *p = params_block;
    return (p->smaller == 0 || p->smaller == 1) &&
           neutron_two_operands_are_sound(program, p->input_a, p->input_b, p->output, window);
}

#if NEUTRON_DSP && !NEUTRON_VECTORS

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

#if NEUTRON_VECTORS
/* name_row_vector(): elements next to each other, by registers of bytes; b may be one element for all. */
#define ROW_VECTOR(name)                                                                                            \
    NEUTRON_VECTOR static void name##_row_vector(const void *numbers, const NeutronTwoOperandRow *row) {            \
        if (row->a_pitch != 1 || row->b_pitch > 1 || row->out_pitch != 1) {                                         \
            name##_row(numbers, row);                                                                               \
            return;                                                                                                 \
        }                                                                                                           \
        for (int32_t c = 0; c < row->cols; c++) {                                                                   \
            const uint8_t *a = row->a + (ptrdiff_t)c * row->a_col_pitch, *b = row->b + (ptrdiff_t)c * row->b_col_pitch; \
            uint8_t *out = row->out + (ptrdiff_t)c * row->out_col_pitch;                                            \
            const NeutronBytes same = neutron_bytes((int8_t)*b);                                                    \
            for (int32_t i = 0; i < row->length; i += NEUTRON_BYTES) {                                              \
                const int32_t left = row->length - i;                                                               \
                const NeutronBytes y = row->b_pitch == 0 ? same : neutron_load_bytes(b + i, left);                  \
                neutron_store_bytes(out + i, neutron_##name##_bytes(neutron_load_bytes(a + i, left), y), left);     \
            }                                                                                                       \
        }                                                                                                           \
    }
#else
#define ROW_VECTOR(name)
#endif

#define ROWS(name)                                                                                \
    static NEUTRON_INLINE void name##_row(const void *numbers, const NeutronTwoOperandRow *row) { \
        neutron_for_each_block(numbers, row, name##_block);                                       \
    }                                                                                             \
    ROW_VECTOR(name)

NEUTRON_ROWS_OF_LARGER_AND_SMALLER(int8_t, ROWS)

void maximum_s8_run(const NeutronKernelCall *call) {
    const NeutronMaximumS8 *p = call->params;
    const NeutronTwoOperandRun run = p->smaller ? NEUTRON_FASTEST(smaller_row) : NEUTRON_FASTEST(larger_row);
    neutron_for_each_row(call, p->input_a, p->input_b, p->output, NULL, run);
}

#endif
