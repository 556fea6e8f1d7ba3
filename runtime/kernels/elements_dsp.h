/* SPDX-License-Identifier: BSD-3-Clause */
/* Four elements at a time with the DSP extension of Arm's M-profile, bit for bit what elements.h computes one by one. */
#ifndef NEUTRON_ELEMENTS_DSP_H
#define NEUTRON_ELEMENTS_DSP_H

#include "dsp.h"
#include "elements.h"

#if NEUTRON_DSP

/* The number in both halves. */
static inline uint32_t neutron_twice(int32_t half) { return (uint32_t)(uint16_t)half * UINT32_C(0x00010001); }

/* Bytes 0 and 2 of a word, each with its sign, added to two 16-bit numbers. */
static inline uint32_t neutron_add_even_bytes(uint32_t pair, uint32_t word) {
    return (uint32_t)__sxtab16((int16x2_t)pair, (int8x4_t)word);
}

/* Bytes 1 and 3. */
static inline uint32_t neutron_add_odd_bytes(uint32_t pair, uint32_t word) {
    uint32_t sums;
    __asm__("sxtab16 %0, %1, %2, ror #8" : "=r"(sums) : "r"(pair), "r"(word));
    return sums;
}

/* sum + the product of the lower halves, or of the upper ones, modulo 2^32. */
static inline uint32_t neutron_add_low_product(uint32_t a, uint32_t b, uint32_t sum) {
    return (uint32_t)__smlabb((int16x2_t)a, (int16x2_t)b, (int32_t)sum);
}
static inline uint32_t neutron_add_high_product(uint32_t a, uint32_t b, uint32_t sum) {
    return (uint32_t)__smlatt((int16x2_t)a, (int16x2_t)b, (int32_t)sum);
}

/* (a * b + 2^31) >> 32: with a doubled, what neutron_high_mul() gives. */
static inline int32_t neutron_rounded_high_word(int32_t a, int32_t b) {
    int32_t high;
    __asm__("smmulr %0, %1, %2" : "=r"(high) : "r"(a), "r"(b));
    return high;
}

/* The low bytes of four numbers as a word. */
static inline uint32_t neutron_packed_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    __asm__("bfi %0, %1, #8, #8\n\tbfi %0, %2, #16, #8\n\tbfi %0, %3, #24, #8" : "+&r"(a) : "r"(b), "r"(c), "r"(d));
    return a;
}

/* The nearest stored values to four numbers, as a word. */
static inline uint32_t neutron_stored_word(int32_t a, int32_t b, int32_t c, int32_t d) {
    __asm__("ssat %0, #8, %0\n\tssat %1, #8, %1\n\tssat %2, #8, %2\n\tssat %3, #8, %3\n\t"
            "bfi %0, %1, #8, #8\n\tbfi %0, %2, #16, #8\n\tbfi %0, %3, #24, #8"
            : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
    return (uint32_t)a;
}

/* Four bytes to anywhere. */
static inline void neutron_store_word(uint8_t *to, uint32_t word) { memcpy(to, &word, sizeof word); }

/* Four elements of a line, or `count` of them where that is less, to a word; and back. */
uint32_t neutron_load_some_dsp(const uint8_t *from, int32_t pitch, int32_t count);
void neutron_store_some_dsp(uint8_t *to, int32_t pitch, uint32_t word, int32_t count);

/* neutron_store_some_dsp, mostly of four elements side by side. */
static inline void neutron_store_four_dsp(uint8_t *to, int32_t pitch, uint32_t word, int32_t count) {
    if (pitch == 1 && count >= 4) {
        neutron_store_word(to, word);
    } else {
        neutron_store_some_dsp(to, pitch, word, count);
    }
}

/* Sums over rows and columns of four channels, or of `count` where that is less. from: the first row's first column, in the
 * first of the channels. */
void neutron_sum_dsp(int32_t *sums, const NeutronBuffer *in, const uint8_t *from, int32_t first_row, int32_t rows,
                     int32_t cols, int32_t count);

#endif
#endif
