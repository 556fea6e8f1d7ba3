/* SPDX-License-Identifier: BSD-3-Clause */
/* Each element through a table with interpolation: LiteRT's operators of one int16 operand. */
#include "lookup_16.h"
#include "two_operands_16.h"

bool lookup_s16_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronLookupS16 *p = params_block;
    return neutron_table_16_is_sound(program, p->table_base, p->table_offset) &&
           neutron_one_operand_is_sound(program, p->input, 2, p->output, 2, window);
}

static NEUTRON_INLINE void look_up_block(const void *numbers, const int16_t *in, int16_t *out, int32_t size) {
    const int16_t *table = numbers;
    for (int32_t i = 0; i < size; i++) out[i] = neutron_look_up_16(table, in[i]);
}

NEUTRON_ROWS_OF_ONE(look_up, 2, 2)

void lookup_s16_run(const NeutronKernelCall *call) {
    const NeutronLookupS16 *p = call->params;
    const void *table = neutron_base_address(call->bases, p->table_base) + p->table_offset;
    neutron_for_each_row_of_one(call, p->input, p->output, table, NEUTRON_FASTEST(look_up_row));
}
