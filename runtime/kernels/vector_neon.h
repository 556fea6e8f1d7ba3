/* SPDX-License-Identifier: BSD-3-Clause */
/* vector.h for NEON on aarch64. */
#ifndef NEUTRON_VECTOR_NEON_H
#define NEUTRON_VECTOR_NEON_H

#include <arm_neon.h>

enum { NEUTRON_WORDS = 4, NEUTRON_PARTS = 2, NEUTRON_BYTES = 16, NEUTRON_FEW_BYTES = 8, NEUTRON_MULTIPLIES_HIGH = 1 };

typedef int32_t NeutronWords __attribute__((vector_size(16)));
typedef int8_t NeutronBytes __attribute__((vector_size(16)));

NEUTRON_VECTOR_INLINE NeutronWords neutron_words(int32_t x) { return (NeutronWords)vdupq_n_s32(x); }

NEUTRON_VECTOR_INLINE void neutron_load_words_8(NeutronWords *x, const void *from, int32_t count) {
    const int8x8_t bytes = vcreate_s8(neutron_load_eight(from, count));
    const int16x8_t halves = vmovl_s8(bytes);
    x[0] = (NeutronWords)vmovl_s16(vget_low_s16(halves));
    x[1] = (NeutronWords)vmovl_high_s16(halves);
}

NEUTRON_VECTOR_INLINE void neutron_load_words_16(NeutronWords *x, const void *from, int32_t count) {
    const uint8_t *at = from;
    const uint64_t low = neutron_load_eight(at, 2 * count), high = count > 4 ? neutron_load_eight(at + 8, 2 * count - 8) : 0;
    x[0] = (NeutronWords)vmovl_s16(vcreate_s16(low));
    x[1] = (NeutronWords)vmovl_s16(vcreate_s16(high));
}

NEUTRON_VECTOR_INLINE void neutron_store_words_8(void *to, const NeutronWords *x, int32_t count) {
    const int16x8_t halves = vuzp1q_s16((int16x8_t)x[0], (int16x8_t)x[1]);
    neutron_store_eight(to, vget_lane_u64(vreinterpret_u64_s8(vmovn_s16(halves)), 0), count);
}

NEUTRON_VECTOR_INLINE void neutron_store_words_16(void *to, const NeutronWords *x, int32_t count) {
    const uint64x2_t halves = (uint64x2_t)vuzp1q_s16((int16x8_t)x[0], (int16x8_t)x[1]);
    uint8_t *at = to;
    neutron_store_eight(at, vgetq_lane_u64(halves, 0), 2 * count);
    if (count > 4) neutron_store_eight(at + 8, vgetq_lane_u64(halves, 1), 2 * count - 8);
}

NEUTRON_VECTOR_INLINE NeutronWords neutron_bound_words(NeutronWords x, NeutronWords low, NeutronWords high) {
    return (NeutronWords)vminq_s32(vmaxq_s32((int32x4_t)x, (int32x4_t)low), (int32x4_t)high);
}

NEUTRON_VECTOR_INLINE NeutronWords neutron_magnitude_words(NeutronWords x) { return (NeutronWords)vabsq_s32((int32x4_t)x); }

NEUTRON_VECTOR_INLINE NeutronWords neutron_shift_left_words(NeutronWords x, int32_t amount) {
    return (NeutronWords)vshlq_s32((int32x4_t)x, vdupq_n_s32(amount));
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
    const int32x4_t given = (int32x4_t)x, below = vandq_s32(given, by->amount);
    return (NeutronWords)vrshlq_s32(vsraq_n_s32(given, below, 31), by->amount);
}

NEUTRON_VECTOR_INLINE NeutronBytes neutron_bytes(int32_t x) { return (NeutronBytes)vdupq_n_s8((int8_t)x); }

NEUTRON_VECTOR_INLINE NeutronBytes neutron_load_bytes(const void *from, int32_t count) {
    if (count >= 16) return (NeutronBytes)vld1q_u8(from);
    const uint8_t *at = from;
    const uint64_t low = neutron_load_eight(at, count), high = count > 8 ? neutron_load_few(at + 8, count - 8) : 0;
    return (NeutronBytes)vcombine_u64(vcreate_u64(low), vcreate_u64(high));
}

NEUTRON_VECTOR_INLINE void neutron_store_bytes(void *to, NeutronBytes x, int32_t count) {
    if (count >= 16) {
        vst1q_u8(to, (uint8x16_t)x);
        return;
    }
    uint8_t *at = to;
    neutron_store_eight(at, vgetq_lane_u64((uint64x2_t)x, 0), count);
    if (count > 8) neutron_store_few(at + 8, vgetq_lane_u64((uint64x2_t)x, 1), count - 8);
}

NEUTRON_VECTOR_INLINE NeutronBytes neutron_larger_bytes(NeutronBytes a, NeutronBytes b) {
    return (NeutronBytes)vmaxq_s8((int8x16_t)a, (int8x16_t)b);
}

NEUTRON_VECTOR_INLINE NeutronBytes neutron_smaller_bytes(NeutronBytes a, NeutronBytes b) {
    return (NeutronBytes)vminq_s8((int8x16_t)a, (int8x16_t)b);
}

/* Four registers are the table of one instruction, which leaves lanes whose index is past the table as they were. */
typedef struct {
    uint8x16x4_t quarters[4];
} NeutronTable;

NEUTRON_VECTOR_INLINE void neutron_prepare_table(NeutronTable *table, const uint8_t *entries) {
    for (int i = 0; i < 4; i++) table->quarters[i] = vld1q_u8_x4(entries + 64 * i);
}

NEUTRON_VECTOR_INLINE NeutronBytes neutron_look_up_bytes(const NeutronTable *table, NeutronBytes x) {
    uint8x16_t index = veorq_u8((uint8x16_t)x, vdupq_n_u8(0x80));
    uint8x16_t result = vqtbl4q_u8(table->quarters[0], index);
    for (int i = 1; i < 4; i++) {
        index = vsubq_u8(index, vdupq_n_u8(64));
        result = vqtbx4q_u8(result, table->quarters[i], index);
    }
    return (NeutronBytes)result;
}

#endif
