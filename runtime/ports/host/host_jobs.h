/* SPDX-License-Identifier: BSD-3-Clause */
/* NXP's driver for the NPU of i.MX 95 on Linux, found at run time, for programs with matrix products on the NPU. */
#ifndef NEUTRON_HOST_JOBS_H
#define NEUTRON_HOST_JOBS_H

#include "NeutronDriver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The environment variable with the path of the library, in place of libNeutronDriver.so where the system's loader finds it. */
#define NEUTRON_HOST_JOBS_LIBRARY "OPENNEUTRON_NEUTRON_DRIVER"

/* The environment variable that lets the CPU compute matrix products in place of an NPU that can't be had: "cpu" does so where there is no
 * library or not so much contiguous memory, and prints a line to stderr that says so; without it these are errors. */
#define NEUTRON_HOST_JOBS_WITHOUT_NPU "OPENNEUTRON_WITHOUT_NPU"

/* Loads the library once in a process, initialises it, and gives its functions to neutronSetJobs. ENEUTRON_NO_JOBS: there is no such library,
 * it lacks a function, or it can't be initialised; neutron_host_jobs_problem says which. */
NeutronError neutron_host_jobs_open(void);

/* The cause of the last ENEUTRON_NO_JOBS or ENEUTRON_MEMORY of this file, in words; static text. */
const char *neutron_host_jobs_problem(void);

/* Returns a buffer of contiguous memory for weights and scratch of one program, aligned to a page; NULL where there is not so much. */
void *neutron_host_jobs_allocate(size_t size_bytes);
void neutron_host_jobs_release(void *buffer);

/* Copies weights to a part of such a buffer and cleans it. */
NeutronError neutron_host_jobs_place(void *to, const void *weights, size_t size_bytes);

#ifdef __cplusplus
}
#endif

#endif
