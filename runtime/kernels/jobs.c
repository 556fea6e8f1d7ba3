/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs.h"

#ifdef __linux__

#include <string.h>

static NeutronJobs jobs;

NeutronError neutronSetJobs(const NeutronJobs *given) {
    const NeutronJobs none = {0};
    if (given != NULL && (given->matmul == NULL || given->clean_cache == NULL)) return ENEUTRON_NULL;
    jobs = given != NULL ? *given : none;
    return ENONE;
}

bool neutron_jobs_are_there(void) { return jobs.matmul != NULL; }

bool neutron_job_memory_is_sound(const NeutronProgramView *program, uint32_t buffer, const NeutronJobMemory *m) {
    const NeutronBuffer *memory = neutron_checked_buffer(program, buffer, true);
    if (memory == NULL || memory->channel_pitch != 1 || memory->offset % NEUTRON_ALIGNMENT != 0) return false;
    const uint64_t inputs = (uint64_t)m->inputs, rows = (uint64_t)m->rows;
    const uint64_t parts = (inputs + (uint64_t)m->most_inputs - 1) / (uint64_t)m->most_inputs;
    const uint64_t results = rows * (uint64_t)m->channels * neutron_job_result_bytes(m);
    const uint64_t operand = m->copied ? neutron_job_whole_lines(rows * inputs) : 0;
    /* The first bound keeps the products inside 64 bits. The first line is spare, since the memory may begin inside one. */
    return parts <= UINT16_MAX && NEUTRON_JOB_LINE_BYTES + NEUTRON_JOB_HEADER_BYTES + operand + m->more + parts * results <=
                                      (uint64_t)memory->channels_held;
}

uint8_t *neutron_job_header(const NeutronKernelCall *call, uint32_t buffer) {
    const NeutronBuffer *memory = &call->buffers[buffer];
    uint8_t *const begin = neutron_base_address(call->bases, memory->base) + memory->offset;
    return begin + (NEUTRON_JOB_LINE_BYTES - (uintptr_t)begin % NEUTRON_JOB_LINE_BYTES) % NEUTRON_JOB_LINE_BYTES;
}

bool neutron_job_set_offset(uint32_t *words, int word, const void *address, const uint8_t *header) {
    const int64_t offset = (int64_t)((intptr_t)address - (intptr_t)header);
    words[word] = (uint32_t)(int32_t)offset;
    return offset >= INT32_MIN && offset <= INT32_MAX;
}

NeutronError neutron_job_clean(const uint8_t *address, int32_t size_bytes) {
    return jobs.clean_cache(address, size_bytes) == ENONE ? ENONE : ENEUTRON_JOB;
}

NeutronError neutron_job_run(const uint32_t *words, uint8_t *header, const uint8_t *operand, int32_t operand_bytes,
                             const uint8_t *results, int32_t result_bytes) {
    memcpy(header, words, NEUTRON_JOB_HEADER_BYTES);
    /* The driver itself cleans the header. Results may lie where the CPU has written another tensor. */
    NeutronError error = jobs.clean_cache(operand, operand_bytes);
    if (error == ENONE) error = jobs.clean_cache(results, result_bytes);
    if (error == ENONE) {
        error = jobs.matmul(header, NEUTRON_JOB_HEADER_BYTES, operand, operand_bytes, results, result_bytes, 0);
    }
    return error == ENONE ? ENONE : ENEUTRON_JOB;
}

void neutron_job_put_line(const NeutronJobMemory *m, uint8_t *operand, int32_t lines, int32_t line, const uint8_t *from,
                          ptrdiff_t pitch, int32_t count) {
    const int32_t parts = neutron_job_parts(m);
    for (int32_t part = 0; part < parts; part++) {
        const int32_t first = part * m->most_inputs, inputs = neutron_job_inputs(m, part);
        const int32_t there = count - first < inputs ? count - first : inputs;
        uint8_t *to = operand + (size_t)lines * (size_t)first + (size_t)line * (size_t)inputs;
        if (pitch == 1) {
            memmove(to, from + first, (size_t)there); /* a program may place its memory over its input */
        } else {
            for (int32_t i = 0; i < there; i++) to[i] = from[(first + i) * pitch];
        }
        memset(to + there, 0, (size_t)(inputs - there));
    }
}

static NeutronError multiply_part(const NeutronJobMemory *m, const NeutronJobOperands *of, int32_t rows, int32_t part) {
    const int32_t inputs = neutron_job_inputs(m, part);
    const uint8_t *operand = m->copied ? neutron_job_row(m, part, 0) : of->operand;
    const uint8_t *results = neutron_job_results(m, part);
    const uint8_t *weights = of->weights + (size_t)m->channels * (size_t)(part * m->most_inputs);
    const void *const addresses[] = {operand, weights, part == 0 ? of->biases : of->zeros, of->factors, results};
    uint32_t words[NEUTRON_JOB_WORDS] = {
        [NEUTRON_JOB_KIND] = (uint32_t)of->kind,
        [NEUTRON_JOB_ROWS] = (uint32_t)rows,
        [NEUTRON_JOB_INPUTS] = (uint32_t)inputs,
        [NEUTRON_JOB_CHANNELS] = (uint32_t)m->channels,
        [NEUTRON_JOB_BYTES_OF_RESULT] = NEUTRON_JOB_RESULT_BYTES,
        [NEUTRON_JOB_BITS] = 8,
        [NEUTRON_JOB_GROUP] = UINT32_MAX,
    };
    for (int word = NEUTRON_JOB_OPERAND; word <= NEUTRON_JOB_RESULTS; word++) {
        const void *address = addresses[word - NEUTRON_JOB_OPERAND];
        if (!neutron_job_set_offset(words, word, address, m->header)) return ENEUTRON_JOB_MEMORY;
    }
    return neutron_job_run(words, m->header, operand, rows * inputs, results, rows * m->channels * NEUTRON_JOB_RESULT_BYTES);
}

NeutronError neutron_job_multiply(const NeutronJobMemory *m, const NeutronJobOperands *of, int32_t rows) {
    NeutronError error = ENONE;
    for (int32_t part = 0; error == ENONE && part < neutron_job_parts(m); part++) error = multiply_part(m, of, rows, part);
    return error;
}

#else

/* NXP's driver for matrix products is one for Linux. */
NeutronError neutronSetJobs(const NeutronJobs *given) {
    (void)given;
    return ENEUTRON_NO_JOBS;
}

#endif
