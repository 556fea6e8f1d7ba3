/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations that the driver's own files share. */
#ifndef NEUTRON_DRIVER_INTERNAL_H
#define NEUTRON_DRIVER_INTERNAL_H

#define NEUTRON_SMALL_FILE
#include "NeutronDriver.h"
#include "kernel.h"

#if NO_HEAP_USAGE && !defined(NEUTRON_NO_HEAP)
#define NEUTRON_NO_HEAP
#endif

/* The longest run that is accepted, counted in input elements read by kernels plus bytes fetched. The default is hours on
 * a microcontroller; a product (or a fuzzer) that needs a tighter bound defines its own. */
#ifndef NEUTRON_MAX_WORK
#define NEUTRON_MAX_WORK (UINT64_C(1) << 40)
#endif
#if NEUTRON_MAX_WORK > (1 << 16 << 16 << 8)
#error "NEUTRON_MAX_WORK: products stay inside 64 bits up to 2^40"
#endif

/* The largest number of windows of kernel calls that prepare checks (docs/microcode.md defines the count); it bounds the
 * time of prepare. */
#ifndef NEUTRON_MAX_CHECKS
#define NEUTRON_MAX_CHECKS (UINT32_C(1) << 20)
#endif
#if NEUTRON_MAX_CHECKS > (1 << 31) - 1
#error "NEUTRON_MAX_CHECKS: with a loop's count added it stays inside 32 bits up to 2^31 - 1"
#endif

#define NEUTRON_MAX_LOOP_COUNT 65535u

/* First word of an operator or instruction: a code and how many words follow. */
static inline uint32_t neutron_code_of(uint32_t word) { return word & 0xFFFFu; }
static inline uint32_t neutron_length_of(uint32_t word) { return word >> 16; }

/* Returns whether [offset, offset + size) is inside [0, total). */
static inline bool neutron_is_inside(uint32_t offset, uint64_t size, uint32_t total) {
    return offset <= total && size <= total - offset;
}

/* CRC-32 (zlib's) of a microcode with the header's microcode_crc taken as 0. */
NEUTRON_SMALL uint32_t neutron_microcode_crc(const void *microcode, uint32_t size_bytes);

/* The registered kernel, or variant of it, of this id that takes the call, which the kernel's check has accepted, or NULL.
 * Without params: the first one of this id, whatever it takes. */
NEUTRON_SMALL const NeutronKernel *neutron_find_variant(uint32_t id, const NeutronBuffer *buffers, const void *params);

/* The window that a CALL, ROWS or WINDOW computes in iteration i of its loop, clipped to the output's extents; false
 * where nothing is left. */
NEUTRON_SMALL bool neutron_call_window(uint32_t opcode, const void *fields, uint32_t iteration, const NeutronBuffer *output,
                         NeutronWindowExtents *window);

/* The sections that the header's offsets point to. neutron_open makes it for a microcode that neutron_validate accepts. */
typedef struct {
    const uint32_t *words;
    const NeutronHeader *header;
    const uint32_t *operators;
    const uint32_t *code;
    NeutronProgramView view;
} NeutronOpened;

NEUTRON_SMALL void neutron_open(const void *microcode, NeutronOpened *opened);

/* Everything that can be known before a run. microcode and weights have aligned addresses and have at least these
 * sizes. *detail gets what the error is about. */
NEUTRON_SMALL NeutronError neutron_validate(const void *microcode, size_t microcode_size, size_t weights_size, uint32_t *detail);

#endif
