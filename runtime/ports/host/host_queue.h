/* SPDX-License-Identifier: BSD-3-Clause */
/* The host's port for the queue of runs, on POSIX threads. */
#ifndef NEUTRON_HOST_QUEUE_H
#define NEUTRON_HOST_QUEUE_H

#include "NeutronDriver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The port for neutronSetQueue. Without a thread that serves the queue, those that wait run the jobs. */
const NeutronQueuePort *neutron_host_queue(void);

/* Sets this port, and starts a thread that serves the queue; false where a thread serves it already or jobs are in it. Both functions are
 * for one thread. */
bool neutron_host_queue_start(void);
/* Ends the thread after the job that it runs. The threads that wait run the jobs from then on. */
void neutron_host_queue_stop(void);

#ifdef __cplusplus
}
#endif

#endif
