/* SPDX-License-Identifier: BSD-3-Clause */
/* The jobs of NXP's NPU computed by the CPU, for systems whose NPU can't be had: buffers, and products in them. The results are those of
 * the NPU, in plain loops. A program that was compiled for the CPU alone is faster. */
#ifndef NEUTRON_HOST_PRODUCTS_H
#define NEUTRON_HOST_PRODUCTS_H

#include <stdbool.h>
#include <stddef.h>

#include "NeutronErrors.h"

/* Returns memory for weights and scratch of one program, aligned to a page; NULL where there is not so much. */
void *neutron_host_products_allocate(size_t size_bytes);

/* Releases memory of neutron_host_products_allocate. Returns false for other memory, and changes nothing. */
bool neutron_host_products_release(void *memory);

/* Returns whether an address is inside such memory. */
bool neutron_host_products_has(const void *address);

/* Computes a job by its header inside such memory. ENEUTRON_JOB: the header is none of a release that the CPU computes. The one left out
 * has int4 weights in the forms before the third release, which no word of a header tells apart. */
NeutronError neutron_host_product(const void *header);

#endif
