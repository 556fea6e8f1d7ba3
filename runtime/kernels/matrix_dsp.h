/* SPDX-License-Identifier: BSD-3-Clause */
/* Products of the rows of matrix.h with the DSP extension, two at a time.
 *
 * Of the 8 nibbles in a word, nibbles k and k + 4 are a pair of 16-bit lanes after a shift and a mask. So that integers make the same pairs when
 * their bytes are widened, both the integers and the decoded weights of an int4 matrix are in the order 0 1 4 5 2 3 6 7 of each 8 columns. */
#ifndef NEUTRON_MATRIX_DSP_H
#define NEUTRON_MATRIX_DSP_H

#include "matrix.h"

/* For speed alone: a build for size does not take the options of dsp.h either. A core with Helium has vectors. */
#ifndef __OPTIMIZE_SIZE__
#include "dsp.h"
#endif

#if NEUTRON_DSP && NEUTRON_FAST_DSP && !NEUTRON_VECTORS
#define NEUTRON_MATRIX_DSP 1

enum {
    NEUTRON_FOUR = 4,
    /* A pair is of sums of 2^14 and (weight + bias) * mantissa + 2^(shift - 1), which are in [0, 2^15) with shifts up to 14 and biases of 0 or 1. */
    NEUTRON_DSP_MOST_SHIFT = 14,
    NEUTRON_DSP_OFFSET = 1 << 14,
    NEUTRON_DSP_GROUP = 32 /* the smallest group */
};

/* ---- int8 ------------------------------------------------------------------------------------------------------------ */

/* Adds 4 products. */
static NEUTRON_INLINE uint32_t neutron_add_row_dsp(uint32_t sum, const uint8_t *row, uint32_t even, uint32_t odd) {
    const uint32_t word = neutron_load_word(row);
    return neutron_add_products(sum, neutron_even_bytes(word), neutron_odd_bytes(word), even, odd);
}

/* Adds the products of one row and each of four others, which are `pitch` bytes apart, to sums that are `apart` integers apart. With a pitch of 0
 * the four rows are the same one. `count`: columns, a multiple of 16. */
static void neutron_dot_four_dsp(const int8_t *one, const int8_t *four, size_t pitch, int32_t count, int32_t *sums, int32_t apart) {
    uint32_t total0 = 0, total1 = 0, total2 = 0, total3 = 0;
    const uint8_t *x = (const uint8_t *)one, *const end = x + count;
    const uint8_t *row0 = (const uint8_t *)four, *row1 = row0 + pitch, *row2 = row1 + pitch, *row3 = row2 + pitch;
    do {
        NEUTRON_UNROLL
        for (int i = 0; i < NEUTRON_MATRIX_STEP; i += 4) {
            const uint32_t word = neutron_load_word(x + i), even = neutron_even_bytes(word), odd = neutron_odd_bytes(word);
            total0 = neutron_add_row_dsp(total0, row0 + i, even, odd);
            total1 = neutron_add_row_dsp(total1, row1 + i, even, odd);
            total2 = neutron_add_row_dsp(total2, row2 + i, even, odd);
            total3 = neutron_add_row_dsp(total3, row3 + i, even, odd);
        }
        x += NEUTRON_MATRIX_STEP;
        row0 += NEUTRON_MATRIX_STEP;
        row1 += NEUTRON_MATRIX_STEP;
        row2 += NEUTRON_MATRIX_STEP;
        row3 += NEUTRON_MATRIX_STEP;
    } while (x != end);
    sums[0] += (int32_t)total0;
    sums[apart] += (int32_t)total1;
    sums[2 * apart] += (int32_t)total2;
    sums[3 * apart] += (int32_t)total3;
}

/* ---- int4 ------------------------------------------------------------------------------------------------------------ */

static inline void neutron_store_word(void *to, uint32_t word) { memcpy(to, &word, sizeof word); }

/* Puts bytes of columns into the order of int4 weights. `count` is a multiple of 8. */
static void neutron_reorder_dsp(int8_t *bytes, int32_t count) {
    for (int8_t *const end = bytes + count; bytes != end; bytes += 8) {
        const uint32_t low = neutron_load_word((const uint8_t *)bytes), high = neutron_load_word((const uint8_t *)bytes + 4);
        neutron_store_word(bytes, (low & 0xFFFFu) | high << 16);
        neutron_store_word(bytes + 4, (high & 0xFFFF0000u) | low >> 16);
    }
}

/* How pairs of a group's weights are decoded. */
typedef struct {
    uint32_t mantissa, first, below, most; /* in both lanes: the sum of the weight -8, the bits below 2^shift, and the largest sum */
    size_t pitch; /* from 16 columns to the next */
    int32_t shift;
} NeutronGroupDsp;

typedef enum { NEUTRON_GROUP_OTHER, NEUTRON_GROUP_BOUND, NEUTRON_GROUP_FREE } NeutronGroupForm;

/* Returns whether pairs hold the group's integers, and whether integers above 127 have to be bound. */
static NEUTRON_INLINE NeutronGroupForm neutron_group_dsp(NeutronGroupDsp *group, int32_t mantissa, int32_t shift, int32_t bias, int32_t offset) {
    if (shift > NEUTRON_DSP_MOST_SHIFT || (uint32_t)bias > 1) return NEUTRON_GROUP_OTHER;
    const int32_t unit = 1 << shift, half = unit >> 1, largest = 8 * mantissa;
    if (largest > unit << 7) return NEUTRON_GROUP_OTHER;
    const uint32_t first = (uint32_t)(mantissa * (bias - 8) + (half + offset)), below = (uint32_t)unit - 1;
    group->mantissa = (uint32_t)mantissa;
    group->first = first | first << 16;
    group->below = below | below << 16;
    group->shift = shift;
    if (bias == 0 || largest + half < unit << 7) return NEUTRON_GROUP_FREE;
    group->most = (((uint32_t)INT8_MAX << shift) + (uint32_t)offset) * 0x00010001u;
    return NEUTRON_GROUP_BOUND;
}

/* 8 stored nibbles as weights + 8. */
static NEUTRON_INLINE uint32_t neutron_nibbles_dsp(const uint8_t *from) { return neutron_load_word(from) ^ 0x88888888u; }

/* The sums of columns k and k + 4 of 8, of which shifts make integers. */
static NEUTRON_INLINE uint32_t neutron_pair_dsp(const NeutronGroupDsp *group, uint32_t nibbles, int k, bool bound) {
    uint32_t pair = ((nibbles >> 4 * k) & neutron_kept(0x000F000Fu)) * group->mantissa + group->first;
    if (bound) __asm__("usub16 %0, %1, %2\n\tsel %0, %2, %1" : "=&r"(pair) : "r"(pair), "r"(group->most));
    return pair & ~group->below;
}

/* Columns k, k + 1, k + 4, k + 5 of 8, all by the same number too large. */
static NEUTRON_INLINE uint32_t neutron_four_dsp(const NeutronGroupDsp *group, uint32_t nibbles, int k, bool bound) {
    return neutron_pair_dsp(group, nibbles, k, bound) >> group->shift | neutron_pair_dsp(group, nibbles, k + 1, bound) >> group->shift << 8;
}

static NEUTRON_INLINE void neutron_decode_group_dsp(int8_t *to, const NeutronGroupDsp *group, const NeutronNibbles *of, uint32_t less, bool bound) {
    const uint8_t *from = of->from;
    for (int32_t i = 0; i < of->columns; i += NEUTRON_MATRIX_STEP, from += of->pitch) {
        NEUTRON_UNROLL
        for (int word = 0; word < 2; word++, to += 8) {
            const uint32_t nibbles = neutron_nibbles_dsp(from + 4 * word);
            neutron_store_word(to, (uint32_t)__uadd8(neutron_four_dsp(group, nibbles, 0, bound), less));
            neutron_store_word(to + 4, (uint32_t)__uadd8(neutron_four_dsp(group, nibbles, 2, bound), less));
        }
    }
}

/* neutron_decode() in the order of this file. */
static void neutron_decode_dsp(int8_t *to, const NeutronNibbles *of) {
    NeutronGroupDsp group;
    /* With a larger offset the integers would not be bytes. */
    const int32_t offset = of->shift < 7 ? 128 << of->shift : NEUTRON_DSP_OFFSET;
    const NeutronGroupForm form = neutron_group_dsp(&group, of->mantissa, of->shift, of->bias, offset);
    if (form == NEUTRON_GROUP_OTHER) {
        neutron_decode(to, of);
        neutron_reorder_dsp(to, of->columns);
        return;
    }
    const uint32_t less = neutron_four_bytes(-(offset >> group.shift));
    if (form == NEUTRON_GROUP_FREE) {
        neutron_decode_group_dsp(to, &group, of, less, false);
    } else {
        neutron_decode_group_dsp(to, &group, of, less, true);
    }
}

/* The integers of a group: their sum by -NEUTRON_DSP_OFFSET, then pairs. */
static void neutron_widen_dsp(uint32_t *to, const int8_t *integers, int32_t count) {
    uint32_t *pair = to + 1, total = 0;
    for (const int8_t *const end = integers + count; integers != end; integers += 4, pair += 2) {
        const uint32_t word = neutron_load_word((const uint8_t *)integers);
        pair[0] = neutron_even_bytes(word);
        pair[1] = neutron_odd_bytes(word);
        total = neutron_add_products(total, pair[0], pair[1], 0x00010001u, 0x00010001u);
    }
    *to = (uint32_t)-NEUTRON_DSP_OFFSET * total;
}

/* Adds the products of 32 columns. A function of its own, so that all it needs is in registers. */
#define NEUTRON_PRODUCTS_OF_32(name, bound)                                                                                                  \
    static __attribute__((noinline)) uint32_t name(uint32_t sum, const uint32_t *x, const uint8_t *from, const NeutronGroupDsp *at) {       \
        const NeutronGroupDsp group = *at;                                                                                                  \
        NEUTRON_UNROLL                                                                                                                      \
        for (int word = 0; word < 4; word++, x += 4) {                                                                                      \
            const uint32_t nibbles = neutron_nibbles_dsp(from + word % 2 * 4);                                                              \
            const uint32_t pair0 = neutron_pair_dsp(&group, nibbles, 0, bound), pair1 = neutron_pair_dsp(&group, nibbles, 1, bound);        \
            sum = neutron_add_products(sum, pair0, pair1, x[0], x[1]);                                                                      \
            const uint32_t pair2 = neutron_pair_dsp(&group, nibbles, 2, bound), pair3 = neutron_pair_dsp(&group, nibbles, 3, bound);        \
            sum = neutron_add_products(sum, pair2, pair3, x[2], x[3]);                                                                      \
            if (word == 1) from += group.pitch;                                                                                             \
        }                                                                                                                                   \
        return sum;                                                                                                                         \
    }

NEUTRON_PRODUCTS_OF_32(neutron_free_products_dsp, false)
NEUTRON_PRODUCTS_OF_32(neutron_bound_products_dsp, true)

/* The products of a group of other decode scales. */
static __attribute__((noinline)) int32_t neutron_other_products_dsp(const NeutronNibbles *nibbles, const int8_t *integers) {
    int8_t decoded[NEUTRON_MATRIX_MOST_GROUP];
    int32_t same[NEUTRON_FOUR] = {0};
    neutron_decode(decoded, nibbles);
    neutron_reorder_dsp(decoded, nibbles->columns);
    neutron_dot_four_dsp(decoded, integers, 0, nibbles->columns, same, 1);
    return same[0];
}

/* Adds to the sums of up to 16 rows the products of a group's columns, from column k on, and of integers, which are `x` too. The first row is a
 * multiple of 16, so that the others follow it. */
static void neutron_add_groups_dsp(int32_t *sums, int32_t count, const NeutronMatrixWords *m, const NeutronMatrixRow *row, int32_t k,
                                   const uint32_t *x, const int8_t *integers) {
    const int32_t columns = m->group;
    const size_t number = (size_t)(k / columns) * row->decode_pitch;
    const uint8_t *from = row->from + (size_t)(k / NEUTRON_MATRIX_STEP) * row->pitch, *decode_scale = row->decode_scales + 2 * number;
    const int8_t *decode_bias = row->decode_biases + number;
    NeutronGroupDsp group;
    group.pitch = row->pitch;
    for (const int32_t *const end = sums + count; sums != end; sums++, from += NEUTRON_MATRIX_STEP / 2, decode_bias++) {
        uint16_t scale;
        memcpy(&scale, decode_scale, sizeof scale);
        const NeutronGroupForm form = neutron_group_dsp(&group, scale & 1023, scale >> 10, *decode_bias, NEUTRON_DSP_OFFSET);
        if (form == NEUTRON_GROUP_FREE) {
            uint32_t sum = neutron_free_products_dsp(*x, x + 1, from, &group);
            for (int32_t i = NEUTRON_DSP_GROUP; i < columns; i += NEUTRON_DSP_GROUP) {
                sum = neutron_free_products_dsp(sum, x + 1 + i / 2, from + (size_t)(i / NEUTRON_MATRIX_STEP) * row->pitch, &group);
            }
            *sums += (int32_t)sum >> group.shift;
        } else if (form == NEUTRON_GROUP_BOUND) {
            uint32_t sum = *x;
            for (int32_t i = 0; i < columns; i += NEUTRON_DSP_GROUP) {
                sum = neutron_bound_products_dsp(sum, x + 1 + i / 2, from + (size_t)(i / NEUTRON_MATRIX_STEP) * row->pitch, &group);
            }
            *sums += (int32_t)sum >> group.shift;
        } else {
            NeutronNibbles nibbles = {.from = from, .pitch = row->pitch, .columns = columns};
            neutron_set_scale(&nibbles, decode_scale, *decode_bias);
            *sums += neutron_other_products_dsp(&nibbles, integers);
        }
        decode_scale += sizeof scale;
    }
}

#else
#define NEUTRON_MATRIX_DSP 0
#endif

#endif
