/* SPDX-License-Identifier: BSD-3-Clause */
/* The code of kernels for the DSP extension of Arm's M-profile (ACLE's SIMD intrinsics; Arm IHI 0053): bytes widened to pairs
 * of 16 bits, and requantization that one long multiplication does. Exactly the portable code's numbers. */
#ifndef NEUTRON_DSP_H
#define NEUTRON_DSP_H

/* From -O2 on gcc orders instructions before it gives out registers, and then runs out of them: what it spills would make a
 * third more instructions. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__ARM_FEATURE_DSP)
#pragma GCC optimize("no-schedule-insns")
#endif

#include "kernel.h"

/* -mcpu=cortex-m33+nodsp, or a build with NEUTRON_PORTABLE_ONLY, has the portable kernels. */
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_ARCH_PROFILE) && !defined(NEUTRON_PORTABLE_ONLY)
#define NEUTRON_DSP (__ARM_ARCH_PROFILE == 'M')
#else
#define NEUTRON_DSP 0
#endif

#if NEUTRON_DSP

/* A build for size has none of the code that is for speed alone. */
#ifdef __OPTIMIZE_SIZE__
#define NEUTRON_FAST_DSP 0
#else
#define NEUTRON_FAST_DSP 1
#endif

#ifdef __ARM_BIG_ENDIAN
#error "DSP kernels read four bytes as a little-endian word: build with -mlittle-endian or -DNEUTRON_PORTABLE_ONLY."
#endif

#include <arm_acle.h>
#include <string.h>

/* Bytes 0 and 2 of a word, each with its sign, as two 16-bit numbers. */
static inline uint32_t neutron_even_bytes(uint32_t word) { return (uint32_t)__sxtb16((int8x4_t)word); }

/* Bytes 1 and 3. */
static inline uint32_t neutron_odd_bytes(uint32_t word) {
#if defined(__clang__)
    return (uint32_t)__sxtb16((int8x4_t)(word >> 8 | word << 24));
#else
    /* gcc 12 does not make one instruction of a rotation and __sxtb16. */
    uint32_t pair;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(pair) : "r"(word));
    return pair;
#endif
}

/* sum + the products of 4 numbers, given as two pairs, with 4 others, modulo 2^32. Compilers give the result of __smlad a
 * register of its own, and run out of them where many sums are added up. */
static inline uint32_t neutron_add_products(uint32_t sum, uint32_t even, uint32_t odd, uint32_t other_even,
                                            uint32_t other_odd) {
    __asm__("smlad %0, %1, %3, %0\n\tsmlad %0, %2, %4, %0"
            : "+&r"(sum)
            : "r"(even), "r"(odd), "r"(other_even), "r"(other_odd));
    return sum;
}

/* A value that was loaded and is to stay in its register, where a compiler would load it again and again. */
static inline uint32_t neutron_kept(uint32_t value) {
    __asm__("" : "+r"(value));
    return value;
}

/* neutron_kept() for an address that a compiler would compute from another one. */
static inline const uint8_t *neutron_kept_pointer(const uint8_t *pointer) {
    __asm__("" : "+r"(pointer));
    return pointer;
}

/* Four bytes from anywhere. */
static inline uint32_t neutron_load_word(const uint8_t *from) {
    uint32_t word;
    memcpy(&word, from, sizeof word);
    return word;
}

/* Four bytes from an address that is a multiple of 4. */
static inline uint32_t neutron_load_aligned_word(const int8_t *from) {
    uint32_t word;
    memcpy(&word, __builtin_assume_aligned(from, 4), sizeof word);
    return word;
}

/* A stored value four times. */
static inline uint32_t neutron_four_bytes(int32_t value) { return UINT32_C(0x01010101) * (uint8_t)value; }

/* The larger and the smaller of each of 4 signed bytes. */
static inline uint32_t neutron_max_bytes(uint32_t a, uint32_t b) {
    uint32_t max;
    __asm__("ssub8 %0, %1, %2\n\tsel %0, %1, %2" : "=&r"(max) : "r"(a), "r"(b));
    return max;
}

static inline uint32_t neutron_min_bytes(uint32_t a, uint32_t b) {
    uint32_t min;
    __asm__("ssub8 %0, %1, %2\n\tsel %0, %2, %1" : "=&r"(min) : "r"(a), "r"(b));
    return min;
}

/* ---- requantization ------------------------------------------------------------------------------------------------- */

/* Most scales are below 1/4 and not negative: with e = -shift of 2 or more, x * multiplier / 2^(31 + e) takes no more than
 * the high word of a sum, which begins with a half, `rounding`. `shift` is e - 1. */
typedef struct {
    int32_t multiplier, rounding, shift, zero_point;
} NeutronDspScale;

/* The multiplier may be one more, once. */
static inline bool neutron_dsp_scale_fits(int32_t multiplier, int32_t shift) {
    return (uint32_t)multiplier < INT32_MAX && shift <= -2 && shift >= -31;
}

static inline NeutronDspScale neutron_dsp_scale(int32_t multiplier, int32_t shift, int32_t zero_point) {
    return (NeutronDspScale){multiplier, INT32_C(1) << (-2 - shift), -1 - shift, zero_point};
}

/* neutron_requantize() + zero_point: rounded twice. Both roundings together are
 *     (x * multiplier + 2^(30 + e) + (x < 0 ? -2^30 : 2^30)) >> (31 + e),
 * where the last term is the first rounding's half, less 2^31 for the negative numbers, whose halves the second one moves
 * away from zero. That asks for the sign of the first rounding's result; where it is 0 and x negative, x will do as well. */
static inline int32_t neutron_dsp_rounded_twice(int32_t x, NeutronDspScale scale) {
    const uint32_t low = ((uint32_t)x & UINT32_C(0x80000000)) + UINT32_C(0x40000000);
    const int64_t start = (int64_t)((uint64_t)(uint32_t)(scale.rounding + (x >> 31)) << 32 | low);
    return ((int32_t)((start + (int64_t)x * scale.multiplier) >> 32) >> scale.shift) + scale.zero_point;
}

/* round(x * (multiplier + fraction / 2^32) / 2^(31 + e)) + zero_point, halves up. */
static inline int32_t neutron_dsp_rounded_once(int32_t x, NeutronDspScale scale, int32_t fraction) {
    const int32_t low = (int32_t)((int64_t)x * fraction >> 32);
    const int64_t start = (int64_t)((uint64_t)(uint32_t)(scale.rounding + (low >> 31)) << 32 | (uint32_t)low);
    return ((int32_t)((start + (int64_t)x * scale.multiplier) >> 32) >> scale.shift) + scale.zero_point;
}

/* min(max(x, -128), 127). gcc 12's __ssat does not compile with -Wconversion. */
static inline uint8_t neutron_dsp_byte(int32_t x) {
    __asm__("ssat %0, #8, %1" : "=r"(x) : "r"(x));
    return (uint8_t)x;
}

#endif
#endif
