/* SPDX-License-Identifier: BSD-3-Clause */
/* The arithmetic of language models (docs/explanation/language-models.md), and what its kernels' checks have in common.
 *
 * A file of these kernels includes this header first: no multiplication is fused with an addition, whatever flags a build has. */
#ifndef NEUTRON_LANGUAGE_H
#define NEUTRON_LANGUAGE_H

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

#include "elements_16.h"

/* A float32 at any address: a program's own inputs and outputs may have any. */
typedef float NeutronFloat __attribute__((aligned(1), may_alias));

/* ---- for check ---------------------------------------------------------------------------------------------------- */

enum { NEUTRON_FLOAT_BYTES = 4, NEUTRON_SUM_PARTS = 16 };

/* The buffer at `index`, which has a row of float32 for each token, or NULL. */
static inline const NeutronBuffer *neutron_float_rows(const NeutronProgramView *program, uint32_t index, bool writable) {
    const NeutronBuffer *buffer = neutron_checked_buffer(program, index, writable);
    const bool sound = buffer != NULL && buffer->batches == 1 && buffer->cols == 1 && buffer->channels_held == buffer->channels &&
                       buffer->channel_pitch == NEUTRON_FLOAT_BYTES &&
                       neutron_elements_are_sound(program, buffer, writable, NEUTRON_FLOAT_BYTES);
    return sound ? buffer : NULL;
}

/* The same of an output, of which the window is the whole. */
static inline const NeutronBuffer *neutron_float_output(const NeutronProgramView *program, uint32_t index,
                                                        const NeutronWindowExtents *w) {
    const NeutronBuffer *buffer = neutron_float_rows(program, index, true);
    const bool whole = buffer != NULL && w->batch0 == 0 && w->batch1 == 1 && w->row0 == 0 && w->row1 == buffer->rows && w->col0 == 0 &&
                       w->col1 == 1 && w->channel0 == 0 && w->channel1 == buffer->channels;
    return whole ? buffer : NULL;
}

/* The buffer at `index` has `count` int64 in a column. */
static inline bool neutron_integers_are_sound(const NeutronProgramView *program, uint32_t index, int32_t count) {
    const NeutronBuffer *buffer = neutron_checked_buffer(program, index, false);
    return buffer != NULL && neutron_buffer_holds(buffer, 0, 1, 0, count) && neutron_elements_are_sound(program, buffer, false, 8);
}

/* So many float32 are at a place of a base. */
static inline bool neutron_floats_are_sound(const NeutronProgramView *program, uint32_t base, uint32_t offset, uint64_t count) {
    return neutron_range_is_sound(program, base, offset, count * NEUTRON_FLOAT_BYTES, NEUTRON_FLOAT_BYTES);
}

/* ---- for run ------------------------------------------------------------------------------------------------------ */

static inline float neutron_float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static NEUTRON_INLINE uint32_t neutron_bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline const NeutronFloat *neutron_float_constant(const NeutronBases *bases, uint32_t base, uint32_t offset) {
    return (const void *)(neutron_base_address(bases, base) + offset);
}

static inline NeutronFloat *neutron_float_row(const NeutronBases *bases, const NeutronBuffer *buffer, int32_t row) {
    return (void *)neutron_row_address(bases, buffer, 0, row);
}

static inline int64_t neutron_integer_at(const NeutronKernelCall *call, uint32_t buffer, int32_t index) {
    int64_t value;
    memcpy(&value, neutron_element_address(call->bases, &call->buffers[buffer], 0, 0, 0, index), sizeof value);
    return value;
}

/* The number of a run's tokens, inside its bounds. */
static inline int32_t neutron_token_count(const NeutronKernelCall *call, uint32_t span, int32_t most) {
    const int64_t count = neutron_integer_at(call, span, 1);
    return count < 0 ? 0 : count > most ? most : (int32_t)count;
}

/* ---- shared functions ---------------------------------------------------------------------------------------------- */

/* The nearest integer to |x| < 2^22, ties to even. 12582912 is 2^23 + 2^22. */
static NEUTRON_INLINE int32_t neutron_nearest(float x) {
    return (int32_t)(neutron_bits_of(x + 12582912.0f) - neutron_bits_of(12582912.0f));
}

/* sqrt, rounded to the nearest: bit by bit, since it is needed once a row, and not every machine has an instruction for it. */
static inline float neutron_sqrt(float x) {
    uint32_t bits = neutron_bits_of(x);
    if (bits == 0 || bits == 0x80000000u || !(x <= 3.402823466e+38f)) return x; /* zeros, infinity, not a number */
    if (bits > 0x80000000u) return neutron_float_of(0x7FC00000u);
    int32_t exponent = (int32_t)(bits >> 23);
    uint32_t mantissa = bits & 0x7FFFFFu;
    if (exponent == 0) {
        exponent = 1;
        for (; mantissa < 0x800000u; mantissa <<= 1) exponent--;
    } else {
        mantissa |= 0x800000u;
    }
    /* x = mantissa * 2^(exponent - 150). With an odd power it is mantissa * 2^25 by an even one: the root has 25 bits, of which the last one
     * is that to round at. No root is in the middle of two float32. */
    exponent -= 150;
    if ((exponent & 1) == 0) {
        mantissa <<= 1;
        exponent--;
    }
    uint64_t left = (uint64_t)mantissa << 25, root = 0;
    for (uint64_t bit = UINT64_C(1) << 48; bit != 0; bit >>= 2) {
        if (left >= root + bit) {
            left -= root + bit;
            root = (root >> 1) + bit;
        } else {
            root >>= 1;
        }
    }
    const uint32_t rounded = (uint32_t)((root + 1) >> 1); /* 2^23 to 2^24, times 2^((exponent - 25) / 2 + 1) */
    return neutron_float_of(rounded + ((uint32_t)((exponent - 25) / 2 + 1 + 149) << 23));
}

static NEUTRON_INLINE float neutron_exp(float x) {
    const float bounded = x > 88.0f ? 88.0f : x;
    const float shifted = bounded * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
    const float r = (bounded - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const uint32_t power = (neutron_bits_of(shifted) - neutron_bits_of(12582912.0f) + 127u) << 23;
    const float y = ((p * (r * r) + r) + 1.0f) * neutron_float_of(power);
    return x < -87.0f ? 0.0f : y;
}

static NEUTRON_INLINE float neutron_tanh(float x) { return 1.0f - 2.0f / (neutron_exp(2.0f * x) + 1.0f); }

static NEUTRON_INLINE float neutron_capped(float x, float cap) { return cap * neutron_tanh(x / cap); }

/* The sum of the 16 partial sums. */
static NEUTRON_INLINE float neutron_total(float *parts) {
    for (int half = NEUTRON_SUM_PARTS / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) parts[i] = parts[i] + parts[i + half];
    }
    return parts[0];
}

/* The sum of term(x[i]) for each i. */
#define NEUTRON_SUM_FUNCTION(name, term)                                               \
    static NEUTRON_INLINE float name(const NeutronFloat *x, int32_t count, float less) { \
        float parts[NEUTRON_SUM_PARTS] = {0};                                          \
        int32_t i = 0;                                                                 \
        (void)less;                                                                    \
        for (; i + NEUTRON_SUM_PARTS <= count; i += NEUTRON_SUM_PARTS) {               \
            for (int l = 0; l < NEUTRON_SUM_PARTS; l++) {                              \
                const float v = x[i + l];                                              \
                parts[l] = parts[l] + (term);                                          \
            }                                                                          \
        }                                                                              \
        for (int l = 0; i < count; i++, l++) {                                         \
            const float v = x[i];                                                      \
            parts[l] = parts[l] + (term);                                              \
        }                                                                              \
        return neutron_total(parts);                                                   \
    }

NEUTRON_SUM_FUNCTION(neutron_sum_values, v)
NEUTRON_SUM_FUNCTION(neutron_sum_squares, v * v)
NEUTRON_SUM_FUNCTION(neutron_sum_deviations, (v - less) * (v - less))

/* RMSNorm's factor of a row. */
static NEUTRON_INLINE float neutron_inverse_rms(const NeutronFloat *x, int32_t count, float epsilon) {
    return 1.0f / neutron_sqrt(neutron_sum_squares(x, count, 0.0f) / (float)count + epsilon);
}

static NEUTRON_INLINE int32_t neutron_stored(float x, float limit) {
    const float known = x == x ? x : 0.0f;
    const float below = known >= limit ? limit : known;
    return neutron_nearest(below <= -limit ? -limit : below);
}

/* A row's factor from float32 to integers, and its scale; both are 0 for a row of zeros. */
typedef struct {
    float factor, scale;
} NeutronRowScale;

#if NEUTRON_VECTORS && defined(__aarch64__)
#include "quantize_neon.h"
#else
/* Vectors take the first values of a row: here none. */
static NEUTRON_INLINE int32_t neutron_most_of(const NeutronFloat *x, int32_t count, int32_t *bits) {
    (void)x, (void)count, (void)bits;
    return 0;
}
static NEUTRON_INLINE int32_t neutron_quantize_some(int8_t *to, const NeutronFloat *x, int32_t count, float factor) {
    (void)to, (void)x, (void)count, (void)factor;
    return 0;
}
#endif

static NEUTRON_INLINE NeutronRowScale neutron_row_scale(const NeutronFloat *x, int32_t count, float limit) {
    /* Magnitudes have the order of their bits; what is no number has larger ones than infinity. */
    int32_t bits = 0;
    for (int32_t i = neutron_most_of(x, count, &bits); i < count; i++) {
        const int32_t magnitude = (int32_t)(neutron_bits_of(x[i]) & 0x7FFFFFFFu), known = magnitude > 0x7F800000 ? 0 : magnitude;
        bits = known > bits ? known : bits;
    }
    const float most = neutron_float_of((uint32_t)bits);
    if (most < 7.888609052e-31f) return (NeutronRowScale){0.0f, 0.0f}; /* 2^-100 */
    return (NeutronRowScale){limit / most, most / limit};
}

/* The integers of `count` values. Without a scale they are 0, whatever the values are. */
static NEUTRON_INLINE void neutron_quantize_8(int8_t *to, const NeutronFloat *x, int32_t count, NeutronRowScale scale) {
    if (scale.factor == 0.0f && scale.scale == 0.0f) {
        memset(to, 0, (size_t)count);
        return;
    }
    for (int32_t i = neutron_quantize_some(to, x, count, scale.factor); i < count; i++) {
        to[i] = (int8_t)neutron_stored(x[i] * scale.factor, 127.0f);
    }
}

#endif
