/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables of 513 int16 entries, 128 stored values apart, with straight lines between them (lut_lookup of LiteRT's common.h). */
#ifndef NEUTRON_LOOKUP_16_H
#define NEUTRON_LOOKUP_16_H

#include "elements_16.h"

enum { NEUTRON_ENTRIES_16 = 513 };

static inline bool neutron_table_16_is_sound(const NeutronProgramView *program, uint32_t base, uint32_t offset) {
    return neutron_range_is_sound(program, base, offset, NEUTRON_ENTRIES_16 * 2, 2);
}

/* Slopes and results are cut to 16 bits, as LiteRT's are. */
static NEUTRON_INLINE int16_t neutron_look_up_16(const int16_t *table, int16_t value) {
    const int32_t index = (value >> 7) + 256, between = value & 127;
    const int32_t slope = (int16_t)(table[index + 1] - table[index]);
    return (int16_t)(table[index] + ((slope * between + 64) >> 7));
}

#endif
