/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernel calls that several threads compute: what a run asks of parts.c. Only builds with NEUTRON_THREADS have any of it. */
#ifndef NEUTRON_PARTS_H
#define NEUTRON_PARTS_H

#include "driver.h"

/* Computes a call in parts, each of them in a thread of its own; false where it is not to be divided, and nothing was computed. The
 * kernel is the variant that takes the call. threads: those of this run; scratch is NULL where another run has it. */
bool neutron_run_in_parts(const NeutronKernel *kernel, const NeutronKernelCall *call, const NeutronProgramView *view,
                          const NeutronThreads *threads);

/* The bytes that each thread but the first needs for scratch of the program's calls. */
uint32_t neutron_scratch_of_a_thread(const NeutronOpened *program);

#endif
