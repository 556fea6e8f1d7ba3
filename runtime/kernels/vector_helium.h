/* SPDX-License-Identifier: BSD-3-Clause */
/* vector.h for the integer vectors of Armv8.1-M (Helium): lanes past the count are those of a predicate. */
#ifndef NEUTRON_VECTOR_HELIUM_H
#define NEUTRON_VECTOR_HELIUM_H

#include <arm_mve.h>

enum { NEUTRON_WORDS = 4, NEUTRON_PARTS = 1, NEUTRON_BYTES = 16, NEUTRON_FEW_BYTES = 16, NEUTRON_MULTIPLIES_HIGH = 1 };

typedef int32_t NeutronWords __attribute__((vector_size(16)));
typedef int8_t NeutronBytes __attribute__((vector_size(16)));

NEUTRON_VECTOR_INLINE NeutronWords neutron_words(int32_t x) { return (NeutronWords)vdupq_n_s32(x); }

NEUTRON_VECTOR_INLINE void neutron_load_words_8(NeutronWords *x, const void *from, int32_t count) {
    *x = (NeutronWords)(count >= 4 ? vldrbq_s32(from) : vldrbq_z_s32(from, vctp32q((uint32_t)count)));
}

/* Loads of 16 bits need an address of their size. */
NEUTRON_VECTOR_INLINE void neutron_load_words_16(NeutronWords *x, const void *from, int32_t count) {
    int16_t halves[4] = {0};
    if (count >= 4) {
        memcpy(halves, from, sizeof halves);
    } else {
        memcpy(halves, from, (size_t)count * sizeof halves[0]);
    }
    *x = (NeutronWords)vldrhq_s32(halves);
}

NEUTRON_VECTOR_INLINE void neutron_store_words_8(void *to, const NeutronWords *x, int32_t count) {
    if (count >= 4) {
        vstrbq_s32(to, (int32x4_t)*x);
    } else {
        vstrbq_p_s32(to, (int32x4_t)*x, vctp32q((uint32_t)count));
    }
}

NEUTRON_VECTOR_INLINE void neutron_store_words_16(void *to, const NeutronWords *x, int32_t count) {
    int16_t halves[4];
    vstrhq_s32(halves, (int32x4_t)*x);
    if (count >= 4) {
        memcpy(to, halves, sizeof halves);
    } else {
        memcpy(to, halves, (size_t)count * sizeof halves[0]);
    }
}

NEUTRON_VECTOR_INLINE NeutronWords neutron_bound_words(NeutronWords x, NeutronWords low, NeutronWords high) {
    return (NeutronWords)vminq_s32(vmaxq_s32((int32x4_t)x, (int32x4_t)low), (int32x4_t)high);
}

NEUTRON_VECTOR_INLINE NeutronWords neutron_magnitude_words(NeutronWords x) { return (NeutronWords)vabsq_s32((int32x4_t)x); }

NEUTRON_VECTOR_INLINE NeutronWords neutron_shift_left_words(NeutronWords x, int32_t amount) {
    return (NeutronWords)vshlq_r_s32((int32x4_t)x, amount);
}

NEUTRON_VECTOR_INLINE NeutronWords neutron_high_mul_words(NeutronWords a, NeutronWords b) {
    return (NeutronWords)vqrdmulhq_s32((int32x4_t)a, (int32x4_t)b);
}

/* The instruction that shifts right rounds halves up; negative numbers are one less before it, so that theirs go down. */
typedef struct {
    int32x4_t amount; /* to the left: 0 or below */
} NeutronRoundingWords;

NEUTRON_VECTOR_INLINE NeutronRoundingWords neutron_rounding_words(NeutronRounding by) {
    return (NeutronRoundingWords){vdupq_n_s32(-by.amount)};
}

NEUTRON_VECTOR_INLINE NeutronWords neutron_shift_rounding_words(NeutronWords x, const NeutronRoundingWords *by) {
    const int32x4_t given = (int32x4_t)x, below = vshrq_n_s32(vandq_s32(given, by->amount), 31);
    return (NeutronWords)vrshlq_s32(vaddq_s32(given, below), by->amount);
}

NEUTRON_VECTOR_INLINE NeutronBytes neutron_bytes(int32_t x) { return (NeutronBytes)vdupq_n_s8((int8_t)x); }

NEUTRON_VECTOR_INLINE NeutronBytes neutron_load_bytes(const void *from, int32_t count) {
    return (NeutronBytes)(count >= 16 ? vldrbq_s8(from) : vldrbq_z_s8(from, vctp8q((uint32_t)count)));
}

NEUTRON_VECTOR_INLINE void neutron_store_bytes(void *to, NeutronBytes x, int32_t count) {
    if (count >= 16) {
        vstrbq_s8(to, (int8x16_t)x);
    } else {
        vstrbq_p_s8(to, (int8x16_t)x, vctp8q((uint32_t)count));
    }
}

NEUTRON_VECTOR_INLINE NeutronBytes neutron_larger_bytes(NeutronBytes a, NeutronBytes b) {
    return (NeutronBytes)vmaxq_s8((int8x16_t)a, (int8x16_t)b);
}

NEUTRON_VECTOR_INLINE NeutronBytes neutron_smaller_bytes(NeutronBytes a, NeutronBytes b) {
    return (NeutronBytes)vminq_s8((int8x16_t)a, (int8x16_t)b);
}

/* A table is loaded from lane by lane. */
typedef struct {
    const uint8_t *entries;
} NeutronTable;

NEUTRON_VECTOR_INLINE void neutron_prepare_table(NeutronTable *table, const uint8_t *entries) { table->entries = entries; }

NEUTRON_VECTOR_INLINE NeutronBytes neutron_look_up_bytes(const NeutronTable *table, NeutronBytes x) {
    return (NeutronBytes)vldrbq_gather_offset_u8(table->entries, veorq_u8((uint8x16_t)x, vdupq_n_u8(0x80)));
}

#endif
