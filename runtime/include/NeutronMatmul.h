/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of libNeutronDriver.so for matrix products on i.MX 95 under Linux. Names, types and meaning follow the public
 * NeutronDriver.h of nxp-mcuxpresso/mcuxsdk-middleware-eiq; this text is ours. The functions have C linkage. The public
 * header has no call that tells a version. */
#ifndef NEUTRON_MATMUL_H
#define NEUTRON_MATMUL_H

#include <stdbool.h>
#include <stdint.h>

#include "NeutronErrors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the library up, and ends its use. NXP's execution provider calls neutronInit first; llama-neutron begins with
 * allocateBuffer, which starts the firmware too. */
NeutronError neutronInit(void);
NeutronError neutronDeinit(void);

/* Gives a buffer of contiguous memory that the CPU and the NPU both see; *buffer is its address for the CPU. userspace is
 * true for a mapping that the program may write. A buffer is below 4 GiB; llama-neutron uses at most 3.5 GiB. Returns ENONE
 * or an error. */
NeutronError allocateBuffer(uint64_t size, void **buffer, bool userspace);

NeutronError releaseBuffer(void *buffer);

/* Writes the CPU's cache lines of a range back to memory and drops them: afterwards the NPU sees what the CPU wrote there,
 * and the CPU what the NPU wrote. */
NeutronError clean_cache(const void *address, int size);

/* Runs one job and returns when it is done. info: its header, 16 words, in a buffer, 64 bytes. in and out: A and the result,
 * as the header's words 5 and 9 place them, with their bytes. slot: the number of the 512 MiB of the buffer that the header
 * lies in, from 0. The call itself makes the header visible to the NPU, and the result to the CPU. */
NeutronError matmul(const void *info, int info_size, const void *in, int in_size, const void *out, int out_size, int slot);

#ifdef __cplusplus
}
#endif
#endif
