/* SPDX-License-Identifier: BSD-3-Clause */
/* Random calls of kernels, the same ones on every machine and in every build. */
#ifndef RANDOM_CALLS_H
#define RANDOM_CALLS_H

#include <stdint.h>

/* What call `number` of kernel `kernel` leaves in its output's memory, as a checksum; 0 where check refused it, 1 where
 * there is no such kernel. The inputs' last bytes lie right before these ends; there is room for 1 << 16 bytes. */
uint32_t random_call(uint32_t kernel, uint32_t number, uint8_t *a_end, uint8_t *b_end);

#endif
