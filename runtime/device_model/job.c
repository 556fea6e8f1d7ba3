/* SPDX-License-Identifier: BSD-3-Clause */
/* The header of a job: its words, by release, and what NXP's published sources refuse. */
#include <string.h>

#include "model.h"

#define MACS 16
#define CORES 4
#define TCM_BYTES (1024 * 1024)
#define BANK_BYTES (TCM_BYTES / 16)
#define MOST_ROWS 2048
#define N_LIMIT (TCM_BYTES / MACS)
#define FORM_FLAG (1 << 18)

static int64_t banks(int64_t size) { return (size + BANK_BYTES - 1) / BANK_BYTES * BANK_BYTES; }

static bool fits(int64_t k, int64_t group, int64_t channels, int64_t cores, int64_t buffers) {
    int64_t block = channels * k + channels * 8;
    if (group != 0)
        block += 3 * channels * k / group + 16 * 1024 * cores;
    return banks(k) + buffers * banks(block) + channels * 4 <= TCM_BYTES;
}

/* The rule of TilingSolver, or that of the packing tool for int4 weights of the first release. */
Tiling tiling_of(int64_t k, int64_t group, enum release release) {
    if (group != 0 && release == FIRST) {
        const bool wide = banks(k) + 2 * banks(2 * MACS * CORES * k) + 2 * MACS * CORES * 4 <= TCM_BYTES;
        return (Tiling){wide ? 2 * MACS : MACS, 1};
    }
    for (int64_t cores = CORES; cores > 0; cores -= CORES - 1) {
        if (fits(k, group, 2 * MACS * cores, cores, 2))
            return (Tiling){2 * MACS, cores};
        if (fits(k, group, MACS * cores, cores, 2) || fits(k, group, MACS * cores, cores, 1))
            return (Tiling){MACS, cores};
    }
    return (Tiling){MACS, 1};
}

/* Whether a range at an offset from the header is aligned and inside the buffer. */
static bool placed(const Buffer *buffer, uint64_t header, int32_t offset, int64_t size, Range *range) {
    const int64_t start = (int64_t)header + offset;
    if (start < 0 || start % MACS != 0 || (uint64_t)start > buffer->size || (uint64_t)size > buffer->size - (uint64_t)start)
        return false;
    *range = (Range){(uint64_t)start, (uint64_t)size};
    return true;
}

static const char *read_kind(int32_t kind, Job *job) {
    if (kind != 1 && kind != 2 && kind != -1 && kind != -2)
        return "the kind is none of 2, 1, -2, -1";
    job->is_signed = kind == 2 || kind == -2;
    job->packed = kind > 0;
    return NULL;
}

static const char *read_sizes(const int32_t *words, Job *job) {
    job->m = words[2];
    job->k = words[3];
    job->result_bytes = words[11];
    if (job->m < 1 || job->m > MOST_ROWS)
        return "M is not from 1 to 2048";
    if (job->k < 1 || job->k % MACS != 0)
        return "K is no multiple of 16";
    if (job->n < 1 || job->n % MACS != 0 || job->n >= N_LIMIT)
        return "N is no multiple of 16 with N * 16 below 1 MiB";
    if (job->result_bytes != 1 && job->result_bytes != 4)
        return "a result has neither 1 nor 4 bytes";
    return NULL;
}

static const char *read_int8(const int32_t *words, const Options *options, Job *job) {
    if (options->release == THIRD) {
        const char *reason = read_kind(words[0], job);
        if (reason != NULL)
            return reason;
        if (words[12] != 8 || words[13] != -1)
            return "words 12 and 13 are not 8 and -1";
    } else {
        if (words[0] != 0)
            return "word 0 is not 0, as this release has it";
        job->is_signed = job->packed = false;
    }
    job->n = words[4];
    job->zero_point = words[10];
    return NULL;
}

static const char *read_int4(const int32_t *words, const Options *options, Job *job) {
    job->group = words[13];
    job->packed = true;
    job->is_signed = false;
    job->n = words[4];
    if (options->release == THIRD) {
        if ((words[4] & FORM_FLAG) == 0)
            return "bit 18 of word 4 is not set, as this release has it";
        job->n = words[4] & ~FORM_FLAG;
        const char *reason = read_kind(words[10], job);
        if (reason != NULL)
            return reason;
        if (!job->packed)
            return "int4 weights are packed";
    } else if (words[0] != 0 || words[10] != 0) {
        return "words 0 and 10 are not 0, as this release has them";
    }
    if (words[11] != 4)
        return "results of int4 weights have 4 bytes";
    if (options->release == SECOND && job->n % 128 != 0)
        return "N is no multiple of 128, as this release needs it for int4 weights";
    if (job->group != 32 && job->group != 64 && job->group != 128)
        return "the group size is none of 32, 64, 128";
    if (job->k % job->group != 0)
        return "K is no multiple of the group size";
    return NULL;
}

/* The blocks of an int4 product whose lengths the list has. A block that is not raw is compressed. */
static const char *check_lengths(const Buffer *buffer, uint64_t header, const int32_t *words, Tiling tiling, Job *job) {
    const int64_t rows = tiling.channels * tiling.cores, blocks = job->n / rows;
    if (!placed(buffer, header, words[0], blocks * 4, &job->lengths))
        return "the list of lengths is not aligned to 16 bytes inside the buffer";
    for (int64_t block = 0; block < blocks; ++block) {
        int32_t length;
        memcpy(&length, buffer->npu + job->lengths.start + (size_t)block * 4, 4);
        if (length != rows * job->k / 2)
            return "a block of weights is compressed, which the model does not read";
    }
    return NULL;
}

static const char *read_ranges(const Buffer *buffer, uint64_t header, const int32_t *words, Job *job) {
    if (!placed(buffer, header, words[5], job->m * job->k, &job->a))
        return "A is not aligned to 16 bytes inside the buffer";
    if (!placed(buffer, header, words[6], job->n * job->k / (job->group != 0 ? 2 : 1), &job->weights))
        return "the weights are not aligned to 16 bytes inside the buffer";
    if (!placed(buffer, header, words[7], job->n * 4, &job->bias))
        return "the bias is not aligned to 16 bytes inside the buffer";
    if (!placed(buffer, header, words[8], job->n * 4, &job->factors))
        return "the factors are not aligned to 16 bytes inside the buffer";
    if (!placed(buffer, header, words[9], job->m * job->n * job->result_bytes, &job->result))
        return "the result is not aligned to 16 bytes inside the buffer";
    if (job->group == 0)
        return NULL;
    const int64_t groups = job->n * job->k / job->group;
    if (!placed(buffer, header, words[1], groups, &job->decode_biases) ||
        !placed(buffer, header, words[14], groups * 2, &job->decode_scales) ||
        !placed(buffer, header, words[15], 16, &job->ones))
        return "decode scales, decode biases or ones are not aligned to 16 bytes inside the buffer";
    for (uint64_t i = 0; i < 16; ++i)
        if (buffer->npu[job->ones.start + i] != 1)
            return "word 15 does not lead to 16 bytes of 1";
    return NULL;
}

static const char *check_factors(const Buffer *buffer, const Job *job) {
    for (int64_t channel = 0; channel < job->n; ++channel) {
        uint32_t factor;
        memcpy(&factor, buffer->npu + job->factors.start + (size_t)channel * 4, 4);
        if (factor >> 22 != 0)
            return "a factor has bits above bit 21";
    }
    return NULL;
}

const char *read_job(const Buffer *buffer, uint64_t header, const Options *options, Job *job) {
    int32_t words[16];
    memcpy(words, buffer->npu + header, sizeof words);
    *job = (Job){0};
    const bool int4 = words[12] == 4;
    const char *reason = int4 ? NULL : read_int8(words, options, job);
    if (int4) {
        job->k = words[3];
        reason = read_int4(words, options, job);
    }
    if (reason == NULL)
        reason = read_sizes(words, job);
    if (reason != NULL)
        return reason;
    const Tiling tiling = tiling_of(job->k, job->group, options->release);
    if (job->packed && job->n % (tiling.channels * tiling.cores) != 0)
        return "N is no whole number of blocks of packed weights";
    reason = read_ranges(buffer, header, words, job);
    if (reason == NULL && int4 && options->release == THIRD)
        reason = check_lengths(buffer, header, words, tiling, job);
    return reason == NULL ? check_factors(buffer, job) : reason;
}
