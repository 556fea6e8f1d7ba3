/* SPDX-License-Identifier: BSD-3-Clause */
/* The quantization of rows (language.h) with NEON: each function takes the first values of a row, and returns their number. */
#ifndef NEUTRON_QUANTIZE_NEON_H
#define NEUTRON_QUANTIZE_NEON_H

#include <arm_neon.h>

/* Sets the bits of the largest magnitude. */
static NEUTRON_INLINE int32_t neutron_most_of(const NeutronFloat *x, int32_t count, int32_t *bits) {
    int32x4_t most[4] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
    int32_t i = 0;
    for (; i + 16 <= count; i += 16) {
        NEUTRON_UNROLL
        for (int j = 0; j < 4; j++) {
            const float32x4_t magnitude = vabsq_f32(vreinterpretq_f32_u8(vld1q_u8((const void *)(x + i + 4 * j))));
            /* What is no number equals nothing. */
            const uint32x4_t known = vandq_u32(vceqq_f32(magnitude, magnitude), vreinterpretq_u32_f32(magnitude));
            most[j] = vmaxq_s32(most[j], vreinterpretq_s32_u32(known));
        }
    }
    *bits = vmaxvq_s32(vmaxq_s32(vmaxq_s32(most[0], most[1]), vmaxq_s32(most[2], most[3])));
    return i;
}

/* Writes the nearest integers from -127 to 127, ties to even. The instruction gives 0 for what is no number, and saturates. */
static NEUTRON_INLINE int32_t neutron_quantize_some(int8_t *to, const NeutronFloat *x, int32_t count, float factor) {
    int32_t i = 0;
    for (; i + 16 <= count; i += 16) {
        int32x4_t words[4];
        NEUTRON_UNROLL
        for (int j = 0; j < 4; j++) {
            words[j] = vcvtnq_s32_f32(vmulq_n_f32(vreinterpretq_f32_u8(vld1q_u8((const void *)(x + i + 4 * j))), factor));
        }
        const int16x8_t low = vqmovn_high_s32(vqmovn_s32(words[0]), words[1]), high = vqmovn_high_s32(vqmovn_s32(words[2]), words[3]);
        vst1q_s8(to + i, vmaxq_s8(vqmovn_high_s16(vqmovn_s16(low), high), vdupq_n_s8(-127)));
    }
    return i;
}

#endif
