/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes neutron_kernels[] from lines NEUTRON_KERNEL(id, name, params, taps), each of which takes one of two forms.
 * table.c does so with all of kernels.def; a kernel selection repeats table.c with the lines of some kernels alone and
 * without NEUTRON_WEAK, so that the linker drops the others. */
#ifndef NEUTRON_SELECTION_H
#define NEUTRON_SELECTION_H

#include "kernel.h"

#define NEUTRON_KERNEL_DECLARATION(id, name, params, taps)                                                             \
    bool name##_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window); \
    void name##_run(const NeutronKernelCall *call);

#define NEUTRON_KERNEL_ENTRY(id, name, params, taps) \
    {(id), sizeof(params) / 4, offsetof(params, output) / 4, (taps), name##_check, name##_run},

#endif
