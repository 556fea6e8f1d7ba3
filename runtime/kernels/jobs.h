/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrix products that the driver of NXP's NPU takes as jobs (NeutronJobs): the words of a header, and the memory of a call with jobs.
 *
 * The call's memory has the job's header, the operand where it is copied, and the results of each part of the inputs, each at the start
 * of a line of the CPU's cache. The firmware multiplies some numbers of inputs wrongly, so that they are divided into parts, whose results
 * are added. The CPU never writes results: a line of its cache that it has changed could be written back over those of the next job. */
#ifndef NEUTRON_JOBS_H
#define NEUTRON_JOBS_H

#include "kernel.h"

enum { NEUTRON_JOB_WORDS = 16, NEUTRON_JOB_HEADER_BYTES = 64, NEUTRON_JOB_LINE_BYTES = 64 };
enum { NEUTRON_JOB_ALIGNED = 16, NEUTRON_JOB_MOST_ROWS = 2048, NEUTRON_JOB_RESULT_BYTES = 4 };
enum { NEUTRON_JOB_MOST_INPUTS = UINT16_MAX * NEUTRON_JOB_ALIGNED };

/* The words of a header. Offsets are in bytes from the header. */
enum {
    NEUTRON_JOB_KIND = 0,
    NEUTRON_JOB_LENGTHS = 0, /* of blocks of int4 weights, an offset */
    NEUTRON_JOB_DECODE_BIASES = 1, /* of int4 weights, an offset */
    NEUTRON_JOB_ROWS = 2,
    NEUTRON_JOB_INPUTS = 3,
    NEUTRON_JOB_CHANNELS = 4,
    NEUTRON_JOB_OPERAND = 5, /* offsets from here on */
    NEUTRON_JOB_WEIGHTS = 6,
    NEUTRON_JOB_BIASES = 7,
    NEUTRON_JOB_FACTORS = 8,
    NEUTRON_JOB_RESULTS = 9, /* the last one */
    NEUTRON_JOB_INT4_KIND = 10,
    NEUTRON_JOB_BYTES_OF_RESULT = 11,
    NEUTRON_JOB_BITS = 12,
    NEUTRON_JOB_GROUP = 13,
    NEUTRON_JOB_DECODE_SCALES = 14, /* of int4 weights, an offset */
    NEUTRON_JOB_ONES = 15 /* of int4 weights, an offset of 16 bytes of 1 */
};

/* ---- memory --------------------------------------------------------------------------------------------------------- */

/* The memory of a call with jobs of at most `rows` rows. */
typedef struct {
    uint8_t *header;
    int32_t rows, channels;
    int32_t inputs; /* of all parts, a multiple of 16 */
    int32_t most_inputs; /* of a part */
    bool copied; /* the operand lies in this memory */
    bool small; /* results have 1 byte */
    uint64_t more; /* whole lines between the operand and the results, which the kernel uses */
} NeutronJobMemory;

static inline uint64_t neutron_job_whole_lines(uint64_t size) {
    return (size + NEUTRON_JOB_LINE_BYTES - 1) & ~(uint64_t)(NEUTRON_JOB_LINE_BYTES - 1);
}

static inline int64_t neutron_job_padded(int64_t inputs) {
    return (inputs + NEUTRON_JOB_ALIGNED - 1) & ~(int64_t)(NEUTRON_JOB_ALIGNED - 1);
}

/* The parts that the inputs are divided into. */
static inline int32_t neutron_job_parts(const NeutronJobMemory *m) {
    return (m->inputs + m->most_inputs - 1) / m->most_inputs;
}

/* The inputs of a part. */
static inline int32_t neutron_job_inputs(const NeutronJobMemory *m, int32_t part) {
    const int32_t left = m->inputs - part * m->most_inputs;
    return left < m->most_inputs ? left : m->most_inputs;
}

/* Row `row` of a part of a copied operand. */
static inline uint8_t *neutron_job_row(const NeutronJobMemory *m, int32_t part, int32_t row) {
    return m->header + NEUTRON_JOB_HEADER_BYTES + (size_t)m->rows * (size_t)(part * m->most_inputs) +
           (size_t)row * (size_t)neutron_job_inputs(m, part);
}

static inline size_t neutron_job_result_bytes(const NeutronJobMemory *m) { return m->small ? 1 : NEUTRON_JOB_RESULT_BYTES; }

/* The bytes between the operand and the results. */
static inline uint8_t *neutron_job_more(const NeutronJobMemory *m) {
    const uint64_t operand = m->copied ? neutron_job_whole_lines((uint64_t)m->rows * (uint64_t)m->inputs) : 0;
    return m->header + NEUTRON_JOB_HEADER_BYTES + (size_t)operand;
}

/* The results of a part, rows by channels. */
static inline uint8_t *neutron_job_results(const NeutronJobMemory *m, int32_t part) {
    const size_t of_part = (size_t)m->rows * (size_t)m->channels * neutron_job_result_bytes(m);
    return neutron_job_more(m) + (size_t)m->more + (size_t)part * of_part;
}

/* Whether a buffer has room for this memory, whose header is ignored. inputs, most_inputs, rows and channels are above 0, inputs and
 * most_inputs are at most NEUTRON_JOB_MOST_INPUTS, more below 2^32, rows at most NEUTRON_JOB_MOST_ROWS and channels at most UINT16_MAX. */
bool neutron_job_memory_is_sound(const NeutronProgramView *program, uint32_t buffer, const NeutronJobMemory *m);

/* Where the header lies in a buffer: at the first line of the cache that begins in it. */
uint8_t *neutron_job_header(const NeutronKernelCall *call, uint32_t buffer);

/* ---- jobs ----------------------------------------------------------------------------------------------------------- */

/* Whether the application has given the driver's functions. */
bool neutron_jobs_are_there(void);

/* Sets a word of a header to the offset of an address. Returns false where a word can't hold it. */
bool neutron_job_set_offset(uint32_t *words, int word, const void *address, const uint8_t *header);

/* Writes what the CPU has changed in a range back to memory, before a job reads it. */
NeutronError neutron_job_clean(const uint8_t *address, int32_t size_bytes);

/* Runs the job with these NEUTRON_JOB_WORDS words, which are copied to the header. The operand has been written, the results not. */
NeutronError neutron_job_run(const uint32_t *words, uint8_t *header, const uint8_t *operand, int32_t operand_bytes,
                             const uint8_t *results, int32_t result_bytes);

/* Writes `count` elements, and zeros up to the number of inputs, as line `line` of an operand or of weights, whose parts have so many
 * lines each. */
void neutron_job_put_line(const NeutronJobMemory *m, uint8_t *operand, int32_t lines, int32_t line, const uint8_t *from,
                          ptrdiff_t pitch, int32_t count);

/* What a job with int8 weights reads. The operand counts where it is not copied; biases are those of the first part, zeros those of the
 * others. */
typedef struct {
    int32_t kind; /* word 0 */
    const uint8_t *operand, *weights, *biases, *zeros, *factors;
} NeutronJobOperands;

/* Multiplies `rows` rows of all parts. */
NeutronError neutron_job_multiply(const NeutronJobMemory *m, const NeutronJobOperands *of, int32_t rows);

#endif
