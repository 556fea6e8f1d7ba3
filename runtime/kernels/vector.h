/* SPDX-License-Identifier: BSD-3-Clause */
/* The primitives of which vector kernels are written, one header for each instruction set.
 *
 * Every header defines the types and functions that follow. A kernel's vector text is the same for all instruction sets. It is marked
 * NEUTRON_VECTOR, or NEUTRON_VECTOR_INLINE where it is inlined into such a function, and is named <name>_vector; NEUTRON_FASTEST(<name>)
 * is the one that this machine runs (elements.h).
 *
 *     NeutronWords    a register of NEUTRON_WORDS int32 lanes: 8 with AVX2, 4 with NEON and Helium. The operators of C compute lane by
 *                     lane; a comparison's result is 0 or -1 in each lane
 *     NeutronBytes    a register of NEUTRON_BYTES int8 lanes: 32 with AVX2, 16 with NEON and Helium
 *
 * Elements become words in steps of NEUTRON_STEP = NEUTRON_PARTS * NEUTRON_WORDS elements, which are an array of NEUTRON_PARTS registers.
 *
 * What a line leaves over of whole registers of bytes is taken in pieces of NEUTRON_FEW_BYTES, which may be a register.
 *
 * Loads and stores take `count`, the number of elements that are left. From a whole step or register on, `count` has no effect; below
 * that, only `count` elements are read or written, and the lanes past them are 0. `count` is above 0. No address needs an alignment.
 *
 *     NeutronWords neutron_words(int32_t x)                           x in all lanes
 *     void neutron_load_words_8(NeutronWords *x, const void *from, int32_t count)     a step of int8 elements
 *     void neutron_load_words_16(NeutronWords *x, const void *from, int32_t count)    a step of int16 elements
 *     void neutron_store_words_8(void *to, const NeutronWords *x, int32_t count)      a step of words that fit int8
 *     void neutron_store_words_16(void *to, const NeutronWords *x, int32_t count)     a step of words that fit int16
 *     NeutronWords neutron_bound_words(NeutronWords x, NeutronWords low, NeutronWords high)     neutron_bound()
 *     NeutronWords neutron_shift_left_words(NeutronWords x, int32_t amount)           modulo 2^32
 *     NeutronWords neutron_magnitude_words(NeutronWords x)            |x|
 *     NeutronWords neutron_high_mul_words(NeutronWords a, NeutronWords b)             neutron_high_mul()
 *     NEUTRON_MULTIPLIES_HIGH                                         that is one instruction
 *     NeutronRoundingWords neutron_rounding_words(NeutronRounding by)
 *     NeutronWords neutron_shift_rounding_words(NeutronWords x, const NeutronRoundingWords *by)    neutron_shift_rounding()
 *
 *     NeutronBytes neutron_bytes(int32_t x)                           the stored value x in all lanes
 *     NeutronBytes neutron_load_bytes(const void *from, int32_t count)
 *     void neutron_store_bytes(void *to, NeutronBytes x, int32_t count)
 *     NeutronBytes neutron_larger_bytes(NeutronBytes a, NeutronBytes b)
 *     NeutronBytes neutron_smaller_bytes(NeutronBytes a, NeutronBytes b)
 *     void neutron_prepare_table(NeutronTable *table, const uint8_t *entries)          256 entries, by the stored value + 128
 *     NeutronBytes neutron_look_up_bytes(const NeutronTable *table, NeutronBytes x)
 */
#ifndef NEUTRON_VECTOR_H
#define NEUTRON_VECTOR_H

#include "elements.h"

#if NEUTRON_VECTORS

/* Fewer than 8 bytes, the first one lowest; the bytes past them are 0. */
static NEUTRON_INLINE uint64_t neutron_load_few(const uint8_t *from, int32_t count) {
    if (count >= 4) {
        uint32_t first, last;
        memcpy(&first, from, 4);
        memcpy(&last, from + count - 4, 4);
        return first | (uint64_t)last << 8 * (count - 4);
    }
    uint64_t few = 0;
    for (int32_t i = 0; i < count; i++) few |= (uint64_t)from[i] << 8 * i;
    return few;
}

static NEUTRON_INLINE void neutron_store_few(uint8_t *to, uint64_t few, int32_t count) {
    if (count >= 4) {
        const uint32_t first = (uint32_t)few, last = (uint32_t)(few >> 8 * (count - 4));
        memcpy(to, &first, 4);
        memcpy(to + count - 4, &last, 4);
        return;
    }
    for (int32_t i = 0; i < count; i++) to[i] = (uint8_t)(few >> 8 * i);
}

/* 8 bytes, of which the first `count` are read. */
static NEUTRON_INLINE uint64_t neutron_load_eight(const uint8_t *from, int32_t count) {
    if (count < 8) return neutron_load_few(from, count);
    uint64_t eight;
    memcpy(&eight, from, 8);
    return eight;
}

/* The first `count` of 8 bytes. */
static NEUTRON_INLINE void neutron_store_eight(uint8_t *to, uint64_t eight, int32_t count) {
    if (count < 8) {
        neutron_store_few(to, eight, count);
    } else {
        memcpy(to, &eight, 8);
    }
}

#if defined(__x86_64__)
#include "vector_avx2.h"
#elif defined(__aarch64__)
#include "vector_neon.h"
#else
#include "vector_helium.h"
#endif

typedef uint32_t NeutronUnsignedWords __attribute__((vector_size(NEUTRON_WORDS * 4)));

enum { NEUTRON_STEP = NEUTRON_PARTS * NEUTRON_WORDS };

#endif
#endif
