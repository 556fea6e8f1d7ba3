/* SPDX-License-Identifier: BSD-3-Clause */
/* The products of the inputs of a recurrent layer's steps, of many steps together, as matrix products that the driver of NXP's NPU takes as
 * jobs (jobs.h). The accumulators are those of the same products step by step. */
#ifndef NEUTRON_SEQUENCE_JOBS_H
#define NEUTRON_SEQUENCE_JOBS_H

#include "jobs.h"
#include "sequences.h"

/* The words with which the parameter block of a recurrent kernel with jobs ends. */
typedef struct {
    uint32_t memory, job_base, job_offset;
    int32_t flipped, job_rows, job_inputs, job_channels, job_kind;
} NeutronSequenceJobWords;

typedef struct NeutronSequenceJobs {
    const NeutronKernelCall *call;
    const NeutronSequenceJobWords *words;
    NeutronJobMemory memory;
    NeutronJobOperands operands;
    int32_t left; /* steps that are not multiplied yet */
    int32_t rows, row; /* steps that have results, and the one of them that is taken */
    NeutronError error;
} NeutronSequenceJobs;

/* weights: base and offset of the weights. rows: those of the matrix. The sequence's words are sound. */
bool neutron_sequence_jobs_are_sound(const NeutronProgramView *program, const NeutronSequence *p, const uint32_t *weights,
                                     const NeutronSequenceJobWords *words, int64_t rows);

NeutronSequenceJobs neutron_sequence_jobs(const NeutronKernelCall *call, const uint32_t *weights,
                                          const NeutronSequenceJobWords *words);

/* Goes on to this step. */
void neutron_next_step(NeutronSequenceJobs *jobs, const NeutronStep *step);

/* The accumulators, with their biases, of 8 rows of the matrix from row `first` on. */
void neutron_step_sums(const NeutronSequenceJobs *jobs, size_t first, uint32_t *sums);

#endif
