/* SPDX-License-Identifier: BSD-3-Clause */
/* The code of the AVX2 variants of the convolution kernels: requantization of 8 channels, and loads that read no more than
 * they must. */
#ifndef NEUTRON_CONVOLUTION_AVX2_H
#define NEUTRON_CONVOLUTION_AVX2_H

#include "convolution.h"

#if NEUTRON_X86_VARIANTS

#include "../x86.h"

/* ---- requantization of 8 lanes of 32 bits ---------------------------------------------------------------------------- */

/* round(round(x * m / 2^31) / 2^e), the first with halves up, the second with halves away from zero, is
 *     (x * m + 2^30 + 2^(30 + e) - (2^31 where x * m + 2^30 < 0 and e > 0)) >> (31 + e).
 * AVX2 shifts 64-bit lanes right only as unsigned numbers, so 2^62, which all shifts divide, is added before and
 * 2^(31 - e) subtracted after.
 *
 * Where results below 0 are bounded to 0 or more and multipliers are positive, sums below 0 may as well be 0; then neither
 * the subtraction nor the lift is needed, and with 1 <= e <= 23 there is room for the output's zero point + 128.
 *
 * A single rounding is left to the portable code: fully connected layers have few outputs. */
typedef enum { NEUTRON_RESCALE_256_FROM_ZERO, NEUTRON_RESCALE_256_ANY, NEUTRON_RESCALE_256_ONCE } NeutronRescaleKind256;

typedef struct {
    __m256i multiplier, rounding, tie, right;
} NeutronProduct256;

/* 8 channels. Even and odd lanes are multiplied apart from each other. */
typedef struct {
    NeutronProduct256 even, odd;
    __m256i left, lift, bias; /* lift: 2^(31 - e) */
} NeutronRescale256;

/* Groups of 8 channels made ready at a time: what a call keeps on the stack, about 6 KiB. */
enum { NEUTRON_GROUPS_256 = 16 };

NEUTRON_VECTOR_INLINE __m256i neutron_words_256(const int32_t *words) {
    return _mm256_loadu_si256((const __m256i *)(const void *)words);
}

/* For the even lanes of 8 words. */
NEUTRON_VECTOR_INLINE NeutronProduct256 neutron_product_256(__m256i multipliers, __m256i rights) {
    const __m256i low = _mm256_set1_epi64x(UINT32_MAX), one = _mm256_set1_epi64x(1);
    const __m256i right = _mm256_and_si256(rights, low);
    const __m256i half = _mm256_sllv_epi64(one, _mm256_add_epi64(right, _mm256_set1_epi64x(30)));
    const __m256i twice = _mm256_cmpgt_epi64(right, _mm256_setzero_si256());
    NeutronProduct256 product;
    product.multiplier = multipliers;
    product.rounding = _mm256_add_epi64(half, _mm256_and_si256(twice, _mm256_set1_epi64x(INT64_C(1) << 30)));
    product.tie = _mm256_and_si256(twice, _mm256_set1_epi64x(INT64_C(1) << 31));
    product.right = _mm256_add_epi64(right, _mm256_set1_epi64x(31));
    return product;
}

NEUTRON_VECTOR_INLINE NeutronRescale256 neutron_rescale_256(const NeutronRequantBlock *table) {
    const __m256i zero = _mm256_setzero_si256();
    const __m256i multiplier = _mm256_max_epi32(neutron_words_256(table->multiplier), _mm256_set1_epi32(-INT32_MAX));
    const __m256i words = _mm256_min_epi32(_mm256_max_epi32(neutron_words_256(table->shift), _mm256_set1_epi32(-31)),
                                           _mm256_set1_epi32(30));
    /* A multiplier of 0, as of the channels that fill up a block, gives 0 with any shift; -1 always fits. */
    const __m256i shift = _mm256_or_si256(words, _mm256_cmpeq_epi32(multiplier, zero));
    NeutronRescale256 r;
    r.left = _mm256_max_epi32(shift, zero);
    const __m256i right = _mm256_sub_epi32(r.left, shift);
    r.even = neutron_product_256(multiplier, right);
    r.odd = neutron_product_256(_mm256_srli_epi64(multiplier, 32), _mm256_srli_epi64(right, 32));
    r.lift = _mm256_sllv_epi32(_mm256_set1_epi32(1), _mm256_sub_epi32(_mm256_set1_epi32(31), right));
    r.bias = neutron_words_256(table->bias);
    return r;
}

/* Makes `count` groups ready, all of one kind. */
NEUTRON_VECTOR static inline NeutronRescaleKind256 neutron_prepare_groups_256(NeutronRescale256 *groups, size_t count,
                                                                            const NeutronConv2dS8 *p,
                                                                            const NeutronRequantBlock *table) {
    const __m256i zero = _mm256_setzero_si256(), most = _mm256_set1_epi64x(31 + 23);
    const __m256i least = _mm256_set1_epi64x(31 + 1);
    __m256i unfit = zero;
    for (size_t g = 0; g < count; g++) {
        groups[g] = neutron_rescale_256(&table[g]);
        unfit = _mm256_or_si256(unfit, _mm256_cmpgt_epi32(zero, neutron_words_256(table[g].multiplier)));
        const NeutronProduct256 *const products[2] = {&groups[g].even, &groups[g].odd};
        for (int i = 0; i < 2; i++) {
            unfit = _mm256_or_si256(unfit, _mm256_cmpgt_epi64(products[i]->right, most));
            unfit = _mm256_or_si256(unfit, _mm256_cmpgt_epi64(least, products[i]->right));
        }
    }
    if (p->single_rounding != 0) return NEUTRON_RESCALE_256_ONCE;
    const bool from_zero = p->clamp_min >= p->output_zero_point && _mm256_testz_si256(unfit, unfit) != 0;
    const __m256i lift = _mm256_set1_epi64x(INT64_C(1) << 62);
    const __m256i zero_point = _mm256_set1_epi64x(p->output_zero_point + 128);
    for (size_t g = 0; g < count; g++) {
        NeutronProduct256 *const products[2] = {&groups[g].even, &groups[g].odd};
        for (int i = 0; i < 2; i++) {
            const __m256i more = from_zero ? _mm256_sllv_epi64(zero_point, products[i]->right) : lift;
            products[i]->rounding = _mm256_add_epi64(products[i]->rounding, more);
        }
    }
    return from_zero ? NEUTRON_RESCALE_256_FROM_ZERO : NEUTRON_RESCALE_256_ANY;
}

NEUTRON_VECTOR_INLINE __m256i neutron_multiplied_256(__m256i x, const NeutronProduct256 *r,
                                                   const NeutronRescaleKind256 kind) {
    const __m256i product = _mm256_mul_epi32(x, r->multiplier);
    __m256i sum = _mm256_add_epi64(product, r->rounding);
    if (kind == NEUTRON_RESCALE_256_ANY) {
        const __m256i below = _mm256_cmpgt_epi64(_mm256_set1_epi64x(-(INT64_C(1) << 30)), product);
        sum = _mm256_sub_epi64(sum, _mm256_and_si256(below, r->tie));
    }
    return _mm256_srlv_epi64(sum, r->right);
}

/* The output's bounds + 128 as bytes, and for results that don't have the zero point yet. */
typedef struct {
    __m128i low_bytes, high_bytes;
    __m256i low, high, zero_point;
} NeutronRange256;

NEUTRON_VECTOR_INLINE NeutronRange256 neutron_range_256(const NeutronConv2dS8 *p) {
    NeutronRange256 range;
    range.low_bytes = _mm_set1_epi8((char)(p->clamp_min ^ -128));
    range.high_bytes = _mm_set1_epi8((char)(p->clamp_max ^ -128));
    range.low = _mm256_set1_epi32(p->clamp_min - p->output_zero_point);
    range.high = _mm256_set1_epi32(p->clamp_max - p->output_zero_point);
    range.zero_point = _mm256_set1_epi32(p->output_zero_point + 128);
    return range;
}

/* Sums without their biases to stored values + 128, not bounded to bytes with FROM_ZERO. */
NEUTRON_VECTOR_INLINE __m256i neutron_rescaled_256(__m256i sums, const NeutronRescale256 *r, const NeutronRange256 *range,
                                                 const NeutronRescaleKind256 kind) {
    __m256i x = _mm256_add_epi32(sums, r->bias);
    if (kind == NEUTRON_RESCALE_256_ANY) {
        x = _mm256_sllv_epi32(x, r->left);
    } else {
        x = _mm256_max_epi32(x, _mm256_setzero_si256());
    }
    const __m256i even = neutron_multiplied_256(x, &r->even, kind);
    const __m256i odd = neutron_multiplied_256(_mm256_srli_epi64(x, 32), &r->odd, kind);
    __m256i y = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
    if (kind == NEUTRON_RESCALE_256_ANY) {
        y = _mm256_sub_epi32(y, r->lift);
        y = _mm256_add_epi32(_mm256_min_epi32(_mm256_max_epi32(y, range->low), range->high), range->zero_point);
    }
    return y;
}

/* Rescaled values of two times 8 channels to bytes. */
NEUTRON_VECTOR_INLINE __m128i neutron_stored_256(__m256i a, __m256i b, const NeutronRange256 *range) {
    const __m256i words = _mm256_packs_epi32(a, b);
    const __m256i order = _mm256_permute4x64_epi64(words, 0xD8);
    const __m128i bytes =
        _mm_packus_epi16(_mm256_castsi256_si128(order), _mm256_extracti128_si256(order, 1));
    const __m128i bounded = _mm_min_epu8(_mm_max_epu8(bytes, range->low_bytes), range->high_bytes);
    return _mm_xor_si128(bounded, _mm_set1_epi8(-128));
}

/* The first `count` of 8 bytes. */
NEUTRON_VECTOR_INLINE void neutron_store_8_256(uint8_t *out, __m128i bytes, int32_t count) {
    if (count >= 8) {
        _mm_storel_epi64((__m128i *)(void *)out, bytes);
    } else {
        const int64_t eight = _mm_cvtsi128_si64(bytes);
        memcpy(out, &eight, (size_t)count);
    }
}

/* ---- loads ---------------------------------------------------------------------------------------------------------- */

/* 8 bytes, of which the first `count` are read. */
NEUTRON_VECTOR_INLINE __m128i neutron_bytes_128(const uint8_t *at, size_t count) {
    if (count >= 8) return _mm_loadl_epi64((const __m128i *)(const void *)at);
    int64_t eight = 0;
    memcpy(&eight, at, count);
    return _mm_cvtsi64_si128(eight);
}

/* ---- blocks of 8 output by 8 input channels --------------------------------------------------------------------------- */

/* Bytes are widened to 16 bits and multiplied in pairs. A packed block [8 k][8 inputs] is four vectors of two channels;
 * each of their accumulators holds two times four sums, which neutron_folded_256 puts together. */
enum { NEUTRON_PIXELS_256 = 3 };

NEUTRON_VECTOR_INLINE void neutron_multiply_block_256(__m256i sums[NEUTRON_PIXELS_256][4], const int8_t *weights,
                                                    const __m128i *inputs, const int pixels) {
    __m256i x[NEUTRON_PIXELS_256];
    NEUTRON_UNROLL
    for (int p = 0; p < pixels; p++) x[p] = _mm256_cvtepi8_epi16(_mm_broadcastq_epi64(inputs[p]));
    NEUTRON_UNROLL
    for (int i = 0; i < 4; i++) {
        const void *at = weights + 16 * i;
        const __m256i w = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)at));
        NEUTRON_UNROLL
        for (int p = 0; p < pixels; p++) sums[p][i] = _mm256_add_epi32(sums[p][i], _mm256_madd_epi16(x[p], w));
    }
}

NEUTRON_VECTOR_INLINE __m256i neutron_folded_256(const __m256i sums[4]) {
    const __m256i mixed =
        _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
    return _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* The first `channels` of each pixel's 8. */
NEUTRON_VECTOR_INLINE void neutron_store_kind_256(const __m256i sums[NEUTRON_PIXELS_256][4], const NeutronRescale256 *r,
                                                const NeutronRange256 *range, uint8_t *out, ptrdiff_t pitch,
                                                int32_t channels, const int pixels, const NeutronRescaleKind256 kind) {
    __m256i y[NEUTRON_PIXELS_256];
    NEUTRON_UNROLL
    for (int p = 0; p < pixels; p++) y[p] = neutron_rescaled_256(neutron_folded_256(sums[p]), r, range, kind);
    const __m128i first = neutron_stored_256(y[0], y[pixels > 1 ? 1 : 0], range);
    neutron_store_8_256(out, first, channels);
    if (pixels > 1) neutron_store_8_256(out + pitch, _mm_unpackhi_epi64(first, first), channels);
    if (pixels > 2) neutron_store_8_256(out + 2 * pitch, neutron_stored_256(y[2], y[2], range), channels);
}

NEUTRON_VECTOR_INLINE void neutron_store_block_256(const __m256i sums[NEUTRON_PIXELS_256][4], const NeutronRescale256 *r,
                                                 const NeutronRange256 *range, NeutronRescaleKind256 kind, uint8_t *out,
                                                 ptrdiff_t pitch, int32_t channels, const int pixels) {
    if (kind == NEUTRON_RESCALE_256_FROM_ZERO) {
        neutron_store_kind_256(sums, r, range, out, pitch, channels, pixels, NEUTRON_RESCALE_256_FROM_ZERO);
    } else {
        neutron_store_kind_256(sums, r, range, out, pitch, channels, pixels, NEUTRON_RESCALE_256_ANY);
    }
}

/* Stores the sums of one pixel with a single rounding. */
NEUTRON_VECTOR_INLINE void neutron_store_once_256(const __m256i sums[4], const NeutronRescale256 *r,
                                                const NeutronConv2dS8 *p, const NeutronRequantBlock *table,
                                                uint8_t *out, int32_t channels) {
    uint32_t accumulators[NEUTRON_LANES];
    void *const at = accumulators;
    _mm256_storeu_si256((__m256i *)at, _mm256_add_epi32(neutron_folded_256(sums), r->bias));
    neutron_store_accumulators(p, table, accumulators, out, 1, channels < NEUTRON_LANES ? channels : NEUTRON_LANES);
}

/* ---- pointwise lines ------------------------------------------------------------------------------------------------ */

/* Made ready for a number of groups of output channels. */
typedef struct {
    const NeutronConv2dS8 *p;
    const NeutronRequantBlock *table;
    int32_t inputs; /* per pixel: channels, or gathered taps */
    NeutronRange256 range;
    size_t group_bytes; /* packed weights of 8 output channels */
    NeutronRescaleKind256 kind;
} NeutronPointwise256;

/* All `channels` of all pixels. */
void neutron_pointwise_tile_256(const NeutronPointwise256 *layer, const NeutronLine *line, const int8_t *weights,
                                const NeutronRescale256 *groups, int32_t channels);

#endif
#endif
