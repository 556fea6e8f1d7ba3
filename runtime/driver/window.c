/* SPDX-License-Identifier: BSD-3-Clause */
#include "driver.h"

/* One copy of it for eight uses: 64-bit comparisons are long on 32-bit cores. */
__attribute__((noinline)) static int32_t clipped(int64_t value, int32_t extent) {
    if (value < 0) return 0;
    return value > extent ? extent : (int32_t)value;
}

bool neutron_call_window(uint32_t opcode, const void *fields, uint32_t iteration, const NeutronBuffer *output,
                         NeutronWindowExtents *window) {
    window->batch0 = window->row0 = window->col0 = window->channel0 = 0;
    window->batch1 = output->batches;
    window->row1 = output->rows;
    window->col1 = output->cols;
    window->channel1 = output->channels;
    if (opcode == NEUTRON_OP_ROWS || opcode == NEUTRON_OP_WINDOW) {
        const NeutronRows *rows = fields; /* WINDOW starts with the same fields */
        const int64_t moved = (int64_t)rows->step * iteration;
        window->row0 = clipped(rows->row0 + moved, output->rows);
        window->row1 = clipped(rows->row1 + moved, output->rows);
    }
    if (opcode == NEUTRON_OP_WINDOW) {
        const NeutronWindow *all = fields;
        window->batch0 = clipped(all->batch0, output->batches);
        window->batch1 = clipped(all->batch1, output->batches);
        window->col0 = clipped(all->col0, output->cols);
        window->col1 = clipped(all->col1, output->cols);
        window->channel0 = clipped(all->channel0, output->channels);
        window->channel1 = clipped(all->channel1, output->channels);
    }
    return window->batch0 < window->batch1 && window->row0 < window->row1 && window->col0 < window->col1 &&
           window->channel0 < window->channel1;
}
