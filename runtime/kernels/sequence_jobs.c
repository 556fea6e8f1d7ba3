/* SPDX-License-Identifier: BSD-3-Clause */
#include "sequence_jobs.h"

#ifdef __linux__

#include <string.h>

enum { TABLES = 3, LANES = 8 };

static NeutronJobMemory memory_of(const NeutronSequence *p, const NeutronSequenceJobWords *words, uint8_t *header) {
    return (NeutronJobMemory){.header = header,
                              .rows = words->job_rows,
                              .channels = words->job_channels,
                              .inputs = (int32_t)neutron_job_padded(p->inputs),
                              .most_inputs = words->job_inputs,
                              .copied = true};
}

bool neutron_sequence_jobs_are_sound(const NeutronProgramView *program, const NeutronSequence *p, const uint32_t *weights,
                                     const NeutronSequenceJobWords *words, int64_t rows) {
    if (p->inputs > NEUTRON_JOB_MOST_INPUTS || words->job_inputs < NEUTRON_JOB_ALIGNED ||
        words->job_inputs > NEUTRON_JOB_MOST_INPUTS || words->job_inputs % NEUTRON_JOB_ALIGNED != 0 || words->job_rows < 1 ||
        words->job_rows > NEUTRON_JOB_MOST_ROWS || words->job_channels < rows ||
        words->job_channels % NEUTRON_JOB_ALIGNED != 0 || words->job_channels > UINT16_MAX) {
        return false;
    }
    const NeutronJobMemory memory = memory_of(p, words, NULL);
    const uint64_t channels = (uint64_t)words->job_channels;
    return neutron_job_memory_is_sound(program, words->memory, &memory) &&
           neutron_range_is_sound(program, weights[0], weights[1], channels * (uint64_t)memory.inputs, NEUTRON_ALIGNMENT) &&
           neutron_range_is_sound(program, words->job_base, words->job_offset, channels * TABLES * sizeof(int32_t),
                                  NEUTRON_ALIGNMENT);
}

NeutronSequenceJobs neutron_sequence_jobs(const NeutronKernelCall *call, const uint32_t *weights,
                                          const NeutronSequenceJobWords *words) {
    const size_t table = (size_t)words->job_channels * sizeof(int32_t);
    const uint8_t *tables = neutron_base_address(call->bases, words->job_base) + words->job_offset;
    return (NeutronSequenceJobs){
        .call = call,
        .words = words,
        .memory = memory_of(call->params, words, neutron_job_header(call, words->memory)),
        .operands = {.kind = words->job_kind,
                     .weights = neutron_base_address(call->bases, weights[0]) + weights[1],
                     .biases = tables,
                     .zeros = tables + table,
                     .factors = tables + 2 * table},
        .error = neutron_jobs_are_there() ? ENONE : ENEUTRON_NO_JOBS,
    };
}

/* Multiplies the inputs of `rows` steps from this one on. */
static void multiply(NeutronSequenceJobs *jobs, const NeutronStep *step) {
    const NeutronBuffer *input = &jobs->call->buffers[step->p->input];
    const ptrdiff_t next = step->p->backwards != 0 ? -(ptrdiff_t)input->col_pitch : input->col_pitch;
    uint8_t *operand = neutron_job_row(&jobs->memory, 0, 0);
    for (int32_t row = 0; row < jobs->rows; row++) {
        neutron_job_put_line(&jobs->memory, operand, jobs->memory.rows, row, step->x + row * next, step->x_pitch,
                             step->p->inputs);
    }
    const size_t size = (size_t)jobs->memory.rows * (size_t)jobs->memory.inputs;
    for (size_t i = 0; jobs->words->flipped != 0 && i < size; i++) operand[i] ^= (uint8_t)jobs->words->flipped;
    if (jobs->error == ENONE) jobs->error = neutron_job_multiply(&jobs->memory, &jobs->operands, jobs->rows);
}

void neutron_next_step(NeutronSequenceJobs *jobs, const NeutronStep *step) {
    if (step->is_first) {
        jobs->left = jobs->call->window.col1;
        jobs->rows = jobs->row = 0;
    } else {
        jobs->row++;
    }
    if (jobs->row < jobs->rows) return;
    jobs->rows = jobs->left < jobs->memory.rows ? jobs->left : jobs->memory.rows;
    jobs->left -= jobs->rows;
    jobs->row = 0;
    multiply(jobs, step);
}

void neutron_step_sums(const NeutronSequenceJobs *jobs, size_t first, uint32_t *sums) {
    const NeutronJobMemory *m = &jobs->memory;
    const size_t at = ((size_t)jobs->row * (size_t)m->channels + first) * NEUTRON_JOB_RESULT_BYTES;
    memcpy(sums, neutron_job_results(m, 0) + at, LANES * sizeof *sums);
    for (int32_t part = 1; part < neutron_job_parts(m); part++) {
        uint32_t more[LANES];
        memcpy(more, neutron_job_results(m, part) + at, sizeof more);
        for (int k = 0; k < LANES; k++) sums[k] += more[k];
    }
}

#else

/* NXP's driver for matrix products is one for Linux. */
typedef int NeutronNothing;

#endif
