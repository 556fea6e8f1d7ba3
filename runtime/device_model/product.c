/* SPDX-License-Identifier: BSD-3-Clause */
/* The arithmetic of a job: weights back into rows, exact sums, then factor, rounding and saturation. */
#include <stdlib.h>
#include <string.h>

#include "model.h"

#define STEP_BYTES 256
#define DECODE_STEP_BYTES 8192
#define MACS 16
#define SUM_STEP 4096 /* products of a byte and an int8 whose sum is far from the bounds of int32 */
#define FAULTY_COLUMNS 256

/* Each core's run of a block takes turns in steps. Returns where byte at of core's run lies in the block. What is beyond
 * the last whole step is not written: it lies behind all steps. */
static int64_t in_turn(int64_t at, int64_t run, int64_t core, int64_t cores, int64_t step) {
    const int64_t whole = run / step * step;
    if (at >= whole)
        return whole * cores + core * (run - whole) + at - whole;
    return at / step * step * cores + core * step + at % step;
}

static void unpack_int8(const uint8_t *from, const Job *job, Tiling tiling, int16_t *to) {
    const int64_t run = tiling.channels * job->k, block = run * tiling.cores;
    for (int64_t row = 0; row < job->n; ++row) {
        const int64_t core = row / tiling.channels % tiling.cores, channel = row % tiling.channels;
        const uint8_t *start = from + row / (tiling.channels * tiling.cores) * block;
        int16_t *out = to + row * job->k;
        /* K is a multiple of 16, as is each step. */
        for (int64_t k = 0; k < job->k; k += MACS) {
            const uint8_t *bytes = start + in_turn(channel * job->k + k, run, core, tiling.cores, STEP_BYTES);
            for (int64_t i = 0; i < MACS; ++i)
                out[k + i] = (int8_t)bytes[i];
        }
    }
}

/* The int8 weight of a nibble: its product with the decode scale, rounded half up and saturated. */
static int16_t decoded(uint8_t nibble, int32_t decode_bias, uint16_t decode_scale) {
    const int32_t weight = (nibble < 8 ? nibble : nibble - 16) + decode_bias;
    const int32_t mantissa = decode_scale & 1023, shift = decode_scale >> 10;
    if (shift > 30)
        return 0; /* below a half */
    const int64_t doubled = (int64_t)weight * mantissa * 2 + (INT64_C(1) << shift);
    const int64_t divisor = INT64_C(1) << (shift + 1);
    const int64_t rounded = (doubled - ((doubled % divisor) + divisor) % divisor) / divisor;
    return (int16_t)(rounded < -128 ? -128 : rounded > 127 ? 127 : rounded);
}

static void unpack_int4(const uint8_t *memory, const Job *job, Tiling tiling, enum release release, int16_t *to) {
    const int64_t groups = job->k / job->group, rows = tiling.channels * tiling.cores;
    const int64_t run = tiling.channels * job->k / 2, values = tiling.channels * groups;
    const int64_t step = release == FIRST ? run : STEP_BYTES / 2;
    const int64_t bias_step = values < DECODE_STEP_BYTES ? values : DECODE_STEP_BYTES;
    const int64_t scale_step = values < DECODE_STEP_BYTES / 2 ? values : DECODE_STEP_BYTES / 2;
    for (int64_t row = 0; row < job->n; ++row) {
        const int64_t core = row / tiling.channels % tiling.cores, channel = row % tiling.channels, block = row / rows;
        const uint8_t *nibbles = memory + job->weights.start + block * run * tiling.cores;
        const uint8_t *biases = memory + job->decode_biases.start + block * values * tiling.cores;
        const uint8_t *scales = memory + job->decode_scales.start + block * values * tiling.cores * 2;
        int16_t *out = to + row * job->k;
        for (int64_t group = 0; group < groups; ++group) {
            const int64_t value = group * tiling.channels + channel;
            uint16_t scale;
            memcpy(&scale, scales + 2 * in_turn(value, values, core, tiling.cores, scale_step), 2);
            const int32_t bias = (int8_t)biases[in_turn(value, values, core, tiling.cores, bias_step)];
            int16_t weights[16];
            for (uint8_t nibble = 0; nibble < 16; ++nibble)
                weights[nibble] = decoded(nibble, bias, scale);
            for (int64_t k = group * job->group; k < (group + 1) * job->group; k += MACS) {
                const uint8_t *bytes =
                    nibbles + in_turn((k * tiling.channels + channel * MACS) / 2, run, core, tiling.cores, step);
                for (int64_t i = 0; i < MACS; ++i)
                    out[k + i] = weights[bytes[i / 2] >> i % 2 * 4 & 15];
            }
        }
    }
}

static void row_major(const uint8_t *from, int64_t count, int16_t *to) {
    for (int64_t i = 0; i < count; ++i)
        to[i] = (int8_t)from[i];
}

#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__)
#define CLONES __attribute__((target_clones("avx2", "default")))
#else
#define CLONES
#endif

/* Four sums over K of a row of weights and four rows of A, modulo 2^32. */
CLONES static void four_sums(const int16_t *weights, const int16_t *const a[4], int64_t k, uint32_t sums[4]) {
    for (int64_t start = 0; start < k; start += SUM_STEP) {
        const int64_t end = k - start < SUM_STEP ? k : start + SUM_STEP;
        int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        for (int64_t i = start; i < end; ++i) {
            s0 += weights[i] * a[0][i];
            s1 += weights[i] * a[1][i];
            s2 += weights[i] * a[2][i];
            s3 += weights[i] * a[3][i];
        }
        sums[0] += (uint32_t)s0;
        sums[1] += (uint32_t)s1;
        sums[2] += (uint32_t)s2;
        sums[3] += (uint32_t)s3;
    }
}

/* product / 2^shift, rounded. */
static int64_t shifted(int64_t product, int32_t shift, enum rounding rounding) {
    if (shift == 0)
        return product;
    if (shift > 60)
        shift = 60; /* a product has 48 bits */
    const int64_t unit = INT64_C(1) << shift, half = unit / 2;
    int64_t rest = product % unit;
    rest += rest < 0 ? unit : 0;
    const int64_t floor = (product - rest) / unit;
    switch (rounding) {
    case HALF_UP:
        return floor + (rest >= half);
    case HALF_EVEN:
        return floor + (rest > half || (rest == half && floor % 2 != 0));
    case HALF_AWAY:
        return floor + (product < 0 ? rest > half : rest >= half);
    case TRUNCATE:
        return floor;
    case TOWARD_ZERO:
        return floor + (product < 0 && rest != 0);
    }
    return floor;
}

static int64_t clamped(int64_t value, int64_t least, int64_t most) {
    return value < least ? least : value > most ? most : value;
}

static void store(uint8_t *to, uint32_t sum, uint32_t factor, const Job *job, const Options *options) {
    const int32_t accumulator = (int32_t)sum;
    int64_t value = shifted((int64_t)accumulator * (factor & 0xFFFF), (int32_t)(factor >> 16), options->rounding);
    if (options->adds_zero_point)
        value += job->zero_point;
    if (job->result_bytes == 1) {
        if (!options->wraps)
            value = job->is_signed ? clamped(value, INT8_MIN, INT8_MAX) : clamped(value, 0, UINT8_MAX);
        *to = (uint8_t)value;
    } else {
        const int32_t word = (int32_t)(options->wraps ? (int64_t)(int32_t)(uint32_t)value : clamped(value, INT32_MIN, INT32_MAX));
        memcpy(to, &word, 4);
    }
}

/* The K that llama-neutron found wrong on firmware 3.1.1. */
static bool is_faulty(int64_t k) {
    static const int64_t wrong[] = {1152, 5632, 6912, 7168, 11008, 13824};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i)
        if (wrong[i] == k)
            return true;
    return false;
}

static void multiply(const Buffer *buffer, const Job *job, const Options *options, const int16_t *weights, int16_t *a) {
    const uint8_t *memory = buffer->npu;
    /* How wrong such results are is not published: the model leaves out the last columns. */
    const int64_t k = options->has_faults && is_faulty(job->k) ? job->k - FAULTY_COLUMNS : job->k;
    for (int64_t m = 0; m < job->m; m += 4) {
        const int64_t rows = job->m - m < 4 ? job->m - m : 4;
        const int16_t *pointers[4];
        for (int64_t i = 0; i < 4; ++i) {
            const uint8_t *from = memory + job->a.start + (m + (i < rows ? i : 0)) * job->k;
            for (int64_t j = 0; j < job->k; ++j)
                a[i * job->k + j] = job->is_signed ? (int16_t)(int8_t)from[j] : (int16_t)from[j];
            pointers[i] = a + i * job->k;
        }
        for (int64_t n = 0; n < job->n; ++n) {
            uint32_t bias, factor;
            memcpy(&bias, memory + job->bias.start + n * 4, 4);
            memcpy(&factor, memory + job->factors.start + n * 4, 4);
            uint32_t sums[4] = {bias, bias, bias, bias};
            four_sums(weights + n * job->k, pointers, k, sums);
            for (int64_t i = 0; i < rows; ++i)
                store(buffer->npu + job->result.start + ((m + i) * job->n + n) * job->result_bytes, sums[i], factor, job,
                      options);
        }
    }
}

bool compute(const Buffer *buffer, const Job *job, const Options *options) {
    int16_t *weights = malloc((size_t)((job->n + 4) * job->k) * sizeof *weights);
    if (weights == NULL)
        return false;
    const Tiling tiling = tiling_of(job->k, job->group, options->release);
    if (job->group != 0)
        unpack_int4(buffer->npu, job, tiling, options->release, weights);
    else if (job->packed)
        unpack_int8(buffer->npu + job->weights.start, job, tiling, weights);
    else
        row_major(buffer->npu + job->weights.start, job->n * job->k, weights);
    multiply(buffer, job, options, weights, weights + job->n * job->k);
    free(weights);
    return true;
}
