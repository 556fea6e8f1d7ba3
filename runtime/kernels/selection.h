/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes neutron_kernels[] from lines of two kinds, each of which takes one of two forms:
 *     NEUTRON_KERNEL(id, name, params, taps)                        all of a kernel: name_run
 *     NEUTRON_VARIANT(id, name, variant, params, taps, condition)   name_run_variant, for the calls that meet the condition
 * table.c makes one of all kernels of kernels.def; a kernel selection repeats table.c with the lines of some kernels, or of
 * some of their variants, and without NEUTRON_WEAK, so that the linker drops the others. */
#ifndef NEUTRON_SELECTION_H
#define NEUTRON_SELECTION_H

#include "kernel.h"

#define NEUTRON_KERNEL_ENTRY(id, name, params, taps) \
    {(id), sizeof(params) / 4, offsetof(params, output) / 4, (taps), NULL, name##_check, name##_run},

#define NEUTRON_VARIANT_DECLARATION(id, name, variant, params, taps, condition)                  \
    NEUTRON_SMALL static bool name##_takes_##variant(const NeutronBuffer *buffers, const void *params_block) { \
        const params *p = params_block;                                                          \
        (void)buffers, (void)p;                                                                  \
        return (condition);                                                                      \
    }

#define NEUTRON_VARIANT_ENTRY(id, name, variant, params, taps, condition)                   \
    {(id),         sizeof(params) / 4,   offsetof(params, output) / 4, (taps),              \
     name##_takes_##variant, name##_check, name##_run_##variant},

#endif
