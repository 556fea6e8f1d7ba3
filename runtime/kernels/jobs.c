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
    return parts <= UINT16_MAX && NEUTRON_JOB_LINE_BYTES + NEUTRON_JOB_HEADER_BYTES + operand + parts * results <=
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

#else

/* NXP's driver for matrix products is one for Linux. */
NeutronError neutronSetJobs(const NeutronJobs *given) {
    (void)given;
    return ENEUTRON_NO_JOBS;
}

#endif
