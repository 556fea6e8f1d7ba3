/* SPDX-License-Identifier: BSD-3-Clause */
/* The library's own table: every kernel. Weak, so that a kernel selection linked with the application replaces it. */
#include "selection.h"

#define NEUTRON_WEAK __attribute__((weak))

/* All of a kernel takes every call. */
#define NEUTRON_VARIANT(...)

#define NEUTRON_KERNEL NEUTRON_KERNEL_ENTRY
NEUTRON_WEAK const NeutronKernel neutron_kernels[] = {
#include "kernels.def"
};
#undef NEUTRON_KERNEL

NEUTRON_WEAK const uint32_t neutron_kernel_count = sizeof(neutron_kernels) / sizeof(neutron_kernels[0]);
