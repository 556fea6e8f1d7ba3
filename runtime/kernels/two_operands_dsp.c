/* SPDX-License-Identifier: BSD-3-Clause */
#include "two_operands_dsp.h"

#include "two_operands.h"

#if NEUTRON_DSP

int32_t neutron_unfit_result_dsp(int32_t x, const NeutronDspScale *scale) {
    const int32_t left = scale->shift > 0 ? scale->shift : 0;
    const int32_t product = neutron_high_mul((int32_t)((uint32_t)x << left), scale->multiplier);
    return __qadd(neutron_shift_rounding(product, neutron_rounding(left - scale->shift)), scale->zero_point);
}

enum { BLOCK = 32 };

typedef struct {
    const void *numbers;
    NeutronTwoOperandWords words;
} Context;

/* Returns the address of elements [first, first + size) of a line: in place, or copied to the block. */
static const uint8_t *gathered(uint8_t *block, const uint8_t *line, int32_t pitch, int32_t first, int32_t size) {
    line += (ptrdiff_t)first * pitch;
    if (pitch == 1 && size % 4 == 0) return line;
    if (pitch == 0) {
        memset(block, *line, BLOCK);
    } else {
        for (int32_t i = 0; i < size; i++, line += pitch) block[i] = *line;
    }
    return block;
}

static void run_line(const Context *context, const NeutronTwoOperandRow *row, const uint8_t *a, const uint8_t *b,
                     uint8_t *out) {
    uint8_t blocks[3][BLOCK];
    for (int32_t done = 0, size; done < row->length; done += size) {
        size = row->length - done;
        if (size >= 4) size &= ~3;
        if ((row->a_pitch != 1 || row->b_pitch != 1 || row->out_pitch != 1) && size > BLOCK) size = BLOCK;
        uint8_t *to = out + (ptrdiff_t)done * row->out_pitch;
        const bool in_place = row->out_pitch == 1 && size % 4 == 0;
        context->words(context->numbers, gathered(blocks[0], a, row->a_pitch, done, size),
                       gathered(blocks[1], b, row->b_pitch, done, size), in_place ? to : blocks[2], (size + 3) / 4);
        for (int32_t i = 0; i < size && !in_place; i++, to += row->out_pitch) *to = blocks[2][i];
    }
}

static void run_row(const void *context, const NeutronTwoOperandRow *row) {
    for (int32_t c = 0; c < row->cols; c++) {
        run_line(context, row, row->a + (ptrdiff_t)c * row->a_col_pitch, row->b + (ptrdiff_t)c * row->b_col_pitch,
                 row->out + (ptrdiff_t)c * row->out_col_pitch);
    }
}

void neutron_two_operands_dsp(const NeutronKernelCall *call, uint32_t a, uint32_t b, uint32_t out, const void *numbers,
                              NeutronTwoOperandWords words) {
    const Context context = {numbers, words};
    neutron_for_each_row(call, a, b, out, &context, run_row);
}

#endif
