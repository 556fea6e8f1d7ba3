/* SPDX-License-Identifier: BSD-3-Clause */
/* Each element through a table of 256: LiteRT's operators of one int8 operand. */
#include "elements_dsp.h"
#include "vector.h"

bool lookup_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronLookupS8 *p = params_block;
    return neutron_window_buffer(program, p->input, false, window) != NULL &&
           neutron_window_buffer(program, p->output, true, window) != NULL &&
           neutron_range_is_sound(program, p->table_base, p->table_offset, 256, 1);
}

static void look_up_line(uint8_t *to, ptrdiff_t to_pitch, const uint8_t *from, ptrdiff_t from_pitch,
                         const uint8_t *table, int32_t count) {
    /* Stored value + 128 is the byte with its highest bit turned. */
#if NEUTRON_DSP && !NEUTRON_VECTORS
    if (to_pitch == 1 && from_pitch == 1) {
        for (; count >= 4; count -= 4, to += 4, from += 4) {
            const uint32_t word = neutron_load_word(from) ^ 0x80808080u;
            neutron_store_word(to, neutron_packed_bytes(table[word & 0xFFu], table[word >> 8 & 0xFFu],
                                                        table[word >> 16 & 0xFFu], table[word >> 24]));
        }
    }
#endif
    if (to_pitch == 1 && from_pitch == 1) {
        for (int32_t i = 0; i < count; i++) to[i] = table[from[i] ^ 0x80u];
    } else {
        for (int32_t i = 0; i < count; i++) to[i * to_pitch] = table[from[i * from_pitch] ^ 0x80u];
    }
}

#if NEUTRON_VECTORS
NEUTRON_VECTOR static void look_up_line_vector(uint8_t *to, ptrdiff_t to_pitch, const uint8_t *from, ptrdiff_t from_pitch,
                                               const uint8_t *entries, int32_t count) {
    int32_t done = 0;
    if (to_pitch == 1 && from_pitch == 1 && count >= 2 * NEUTRON_BYTES) {
        NeutronTable table;
        neutron_prepare_table(&table, entries);
        for (; done <= count - NEUTRON_BYTES; done += NEUTRON_BYTES) {
            const NeutronBytes x = neutron_load_bytes(from + done, NEUTRON_BYTES);
            neutron_store_bytes(to + done, neutron_look_up_bytes(&table, x), NEUTRON_BYTES);
        }
    }
    look_up_line(to + done * to_pitch, to_pitch, from + done * from_pitch, from_pitch, entries, count - done);
}
#endif

static NEUTRON_INLINE void look_up(const NeutronKernelCall *call, uint8_t *to, int32_t to_pitch, const uint8_t *from,
                                   int32_t from_pitch, int32_t length) {
    const NeutronLookupS8 *p = call->params;
    const uint8_t *table = neutron_base_address(call->bases, p->table_base) + p->table_offset;
    NEUTRON_FASTEST(look_up_line)(to, to_pitch, from, from_pitch, table, length);
}

void lookup_s8_run(const NeutronKernelCall *call) {
    const NeutronLookupS8 *p = call->params;
    neutron_copy_lines(call, p->input, p->output, look_up);
}
