/* SPDX-License-Identifier: BSD-3-Clause */
/* recurrent_s8 whose products of the inputs are jobs of the NPU's driver. */
#include "gates.h"

#ifdef __linux__

static const NeutronSequenceJobWords *job_words(const NeutronRecurrentJobS8 *p) {
    const void *words = &p->memory;
    return words;
}

bool recurrent_job_s8_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) {
    const NeutronRecurrentJobS8 *p = params;
    /* The packed weights of that kernel take no more bytes than those of jobs. */
    if (!recurrent_s8_check(program, params, window)) return false;
    const int64_t rows = (p->kind == 0 ? 3 : 1) * (int64_t)neutron_blocks_of(p->cells) * NEUTRON_LANES;
    return neutron_sequence_jobs_are_sound(program, params, &p->input_weights_base, job_words(p), rows);
}

void recurrent_job_s8_run(const NeutronKernelCall *call) {
    const NeutronRecurrentJobS8 *p = call->params;
    NeutronSequenceJobs jobs = neutron_sequence_jobs(call, &p->input_weights_base, job_words(p));
    if (jobs.error == ENONE) neutron_run_recurrent_with_jobs(call, &jobs);
    if (jobs.error != ENONE && call->error != NULL) *call->error = jobs.error;
}

#else

/* NXP's driver for matrix products is one for Linux. */
bool recurrent_job_s8_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) {
    (void)program, (void)params, (void)window;
    return false;
}

void recurrent_job_s8_run(const NeutronKernelCall *call) { (void)call; }

#endif
