/* SPDX-License-Identifier: BSD-3-Clause */
/* The way through the windows of kernels with two operands, four elements at a time, for the DSP extension. */
#ifndef NEUTRON_TWO_OPERANDS_DSP_H
#define NEUTRON_TWO_OPERANDS_DSP_H

#include "elements_dsp.h"

#if NEUTRON_DSP

/* `words` words of both operands, one at least, to the result: each word is read before it is written. */
typedef void (*NeutronTwoOperandWords)(const void *numbers, const uint8_t *a, const uint8_t *b, uint8_t *out,
                                       int32_t words);

/* All of the call. Takes every layout: what does not lie side by side goes through a block of memory. */
void neutron_two_operands_dsp(const NeutronKernelCall *call, uint32_t a, uint32_t b, uint32_t out, const void *numbers,
                              NeutronTwoOperandWords words);

#endif
#endif
