/* SPDX-License-Identifier: BSD-3-Clause */
/* unidirectional_sequence_lstm_s8 whose products of the inputs are jobs of the NPU's driver. */
#include "gates.h"

#ifdef __linux__

static const NeutronSequenceJobWords *job_words(const NeutronUnidirectionalSequenceLstmJobS8 *p) {
    const void *words = &p->memory;
    return words;
}

bool unidirectional_sequence_lstm_job_s8_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) {
    const NeutronUnidirectionalSequenceLstmJobS8 *p = params;
    /* The packed weights of that kernel take no more bytes than those of jobs. */
    if (!unidirectional_sequence_lstm_s8_check(program, params, window)) return false;
    const int64_t rows = (p->cifg != 0 ? 3 : 4) * (int64_t)p->cells;
    return neutron_sequence_jobs_are_sound(program, params, &p->input_weights_base, job_words(p), rows);
}

void unidirectional_sequence_lstm_job_s8_run(const NeutronKernelCall *call) {
    const NeutronUnidirectionalSequenceLstmJobS8 *p = call->params;
    NeutronSequenceJobs jobs = neutron_sequence_jobs(call, &p->input_weights_base, job_words(p));
    if (jobs.error == ENONE) neutron_run_lstm_with_jobs(call, &jobs);
    if (jobs.error != ENONE && call->error != NULL) *call->error = jobs.error;
}

#else

/* NXP's driver for matrix products is one for Linux. */
bool unidirectional_sequence_lstm_job_s8_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) {
    (void)program, (void)params, (void)window;
    return false;
}

void unidirectional_sequence_lstm_job_s8_run(const NeutronKernelCall *call) { (void)call; }

#endif
