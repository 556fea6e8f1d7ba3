/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of the model share. */
#ifndef MODEL_H
#define MODEL_H

#include "device_model.h"

/* ports/host/host_products.c includes the files that read and compute jobs, and has their functions for itself. */
#ifndef JOB_LINKAGE
#define JOB_LINKAGE
#endif

enum release { FIRST, SECOND, THIRD };
enum rounding { HALF_UP, HALF_EVEN, HALF_AWAY, TRUNCATE, TOWARD_ZERO };

typedef struct {
    enum release release;
    enum rounding rounding;
    bool adds_zero_point;
    bool wraps;
    bool has_faults; /* of firmware 3.1.1 */
    bool cleans_input;
    uint64_t memory_bytes;
} Options;

/* A buffer as both see it. stale has a bit for each line that the NPU wrote and the CPU does not see yet. */
typedef struct {
    uint8_t *cpu;
    uint8_t *npu;
    uint64_t *stale;
    uint64_t size;
} Buffer;

/* A range of a buffer, in bytes from its start. */
typedef struct {
    uint64_t start;
    uint64_t size;
} Range;

/* The lines of a range become alike on both sides: the CPU's bytes count, or the NPU's where it wrote last. */
void clean(Buffer *buffer, Range range);

/* Whether the NPU sees what the CPU wrote in a range. */
bool is_clean(const Buffer *buffer, Range range);

/* The most ranges that a job reads. */
#define MOST_READS 8

/* A job as its header gives it. A, weights and so on are ranges of the buffer. */
typedef struct {
    int64_t m, k, n;
    int64_t group; /* 0: int8 weights */
    bool is_signed, packed;
    int32_t zero_point;
    int32_t result_bytes;
    Range a, weights, bias, factors, result, lengths, decode_biases, decode_scales, ones;
} Job;

typedef struct {
    int64_t channels, cores;
} Tiling;

JOB_LINKAGE Tiling tiling_of(int64_t k, int64_t group, enum release release);

/* Reads a header at an offset of the NPU's view. Returns NULL, or why the job is refused. */
JOB_LINKAGE const char *read_job(const Buffer *buffer, uint64_t header, const Options *options, Job *job);

/* Computes the job into the NPU's view. Returns false where there is no memory for it. */
JOB_LINKAGE bool compute(const Buffer *buffer, const Job *job, const Options *options);

#endif
