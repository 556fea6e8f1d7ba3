/* SPDX-License-Identifier: BSD-3-Clause */
/* Elements of int16, at any address, in blocks as elements.h has them for int8. */
#ifndef NEUTRON_ELEMENTS_16_H
#define NEUTRON_ELEMENTS_16_H

#include "elements.h"

/* Bounds of a fused activation. */
static inline bool neutron_bounds_are_sound_16(int32_t low, int32_t high) {
    return low >= INT16_MIN && low <= high && high <= INT16_MAX;
}

static NEUTRON_INLINE int16_t neutron_load_16(const uint8_t *from) {
    int16_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

static NEUTRON_INLINE void neutron_store_16(uint8_t *to, int16_t value) { memcpy(to, &value, sizeof value); }

/* `size` elements of a line to the block; `pitch` is bytes. */
static NEUTRON_INLINE void neutron_load_block_16(int16_t *block, const uint8_t *line, int32_t pitch, int32_t size) {
    if (pitch == 2) {
        memcpy(block, line, (size_t)size * 2);
    } else {
        for (int32_t i = 0; i < size; i++) block[i] = neutron_load_16(line + (ptrdiff_t)i * pitch);
    }
}

/* The block to `size` elements of a line. */
static NEUTRON_INLINE void neutron_store_block_16(uint8_t *line, int32_t pitch, const int16_t *block, int32_t size) {
    if (pitch == 2) {
        memcpy(line, block, (size_t)size * 2);
    } else {
        for (int32_t i = 0; i < size; i++) neutron_store_16(line + (ptrdiff_t)i * pitch, block[i]);
    }
}

#endif
