/* SPDX-License-Identifier: BSD-3-Clause */
/* The host's threads for the parts of kernel calls, on POSIX threads: one pool for all models of the process. */
#ifndef NEUTRON_HOST_THREADS_H
#define NEUTRON_HOST_THREADS_H

#include "NeutronDriver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lets `count` threads compute the calls of a prepared model, the caller's thread among them, and starts those that the pool lacks.
 * scratch and scratch_size: as in NeutronThreads. ENEUTRON_MEMORY: a thread cannot be started. */
NeutronError neutron_host_threads_set(NeutronModelHandle handle, uint32_t count, void *scratch, size_t scratch_size);

/* NeutronThreads.parallel: each part in a free thread of the pool. The caller computes parts too. While the pool computes for another
 * caller, the caller computes all of them. */
void neutron_host_threads_parallel(uint32_t count, void (*part)(void *context, uint32_t number), void *context);

/* Ends the threads of the pool, while no model runs. The next neutron_host_threads_set starts them again. */
void neutron_host_threads_stop(void);

#ifdef __cplusplus
}
#endif

#endif
