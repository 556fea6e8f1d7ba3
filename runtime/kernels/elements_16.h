/* SPDX-License-Identifier: BSD-3-Clause */
/* Elements of int16, at any address, in blocks as elements.h has them for int8; checks of elements of more than one byte. */
#ifndef NEUTRON_ELEMENTS_16_H
#define NEUTRON_ELEMENTS_16_H

#include "elements.h"

/* ---- for check ---------------------------------------------------------------------------------------------------- */

/* Returns whether all bytes of the buffer's elements are inside its base. */
bool neutron_elements_are_sound(const NeutronProgramView *program, const NeutronBuffer *buffer, bool writable,
                                uint32_t element_bytes);

/* neutron_window_buffer() for elements of several bytes, all of which are inside the buffer's base. */
const NeutronBuffer *neutron_window_elements(const NeutronProgramView *program, uint32_t index, bool writable,
                                             const NeutronWindowExtents *window, uint32_t element_bytes);

/* Bounds of a fused activation. */
static inline bool neutron_bounds_are_sound_16(int32_t low, int32_t high) {
    return low >= INT16_MIN && low <= high && high <= INT16_MAX;
}

/* Both buffers have so many channels, and of the input all channels of the window's columns are read. */
static NEUTRON_INLINE bool neutron_lines_are_sound(const NeutronProgramView *program, uint32_t input, uint32_t output,
                                                   int32_t channels, const NeutronWindowExtents *window,
                                                   const uint32_t element_bytes) {
    const NeutronBuffer *in = neutron_checked_buffer(program, input, false);
    const NeutronBuffer *out = neutron_window_elements(program, output, true, window, element_bytes);
    if (in == NULL || out == NULL || channels != in->channels || channels != out->channels) return false;
    NeutronWindowExtents read = *window;
    read.channel0 = 0;
    read.channel1 = channels;
    return neutron_window_elements(program, input, false, &read, element_bytes) != NULL;
}

/* ---- for run ------------------------------------------------------------------------------------------------------ */

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

/* `size` elements of 2 bytes, or of 1 byte that become int16, to the block; and back. */
static NEUTRON_INLINE void neutron_load_block_of(int16_t *block, const uint8_t *line, int32_t pitch, int32_t size,
                                                 const int32_t element_bytes) {
    if (element_bytes == 2) {
        neutron_load_block_16(block, line, pitch, size);
    } else {
        int8_t narrow[NEUTRON_BLOCK];
        neutron_load_block(narrow, line, pitch, size);
        for (int32_t i = 0; i < size; i++) block[i] = narrow[i];
    }
}

static NEUTRON_INLINE void neutron_store_block_of(uint8_t *line, int32_t pitch, const int16_t *block, int32_t size,
                                                  const int32_t element_bytes) {
    if (element_bytes == 2) {
        neutron_store_block_16(line, pitch, block, size);
    } else {
        int8_t narrow[NEUTRON_BLOCK];
        for (int32_t i = 0; i < size; i++) narrow[i] = (int8_t)block[i];
        neutron_store_block(line, pitch, narrow, size);
    }
}

/* ---- fixed point -------------------------------------------------------------------------------------------------- */

/* A factor: neutron_requantize() in a form that a compiler vectorises. Where the factor shifts right, for |x| < 2^30. */
typedef struct {
    int32_t multiplier, left;
    NeutronRounding rounding;
} NeutronFactor;

static inline NeutronFactor neutron_factor(int32_t multiplier, int32_t shift) {
    const int32_t left = shift > 0 ? shift : 0;
    return (NeutronFactor){multiplier, left, neutron_rounding(left - shift)};
}

static NEUTRON_INLINE int32_t neutron_times(int32_t x, const NeutronFactor *by) {
    const int32_t shifted = (int32_t)((uint32_t)x << by->left);
    return neutron_shift_rounding(neutron_high_mul(shifted, by->multiplier), by->rounding);
}

#endif
