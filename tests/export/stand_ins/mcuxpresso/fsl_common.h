/* SPDX-License-Identifier: BSD-3-Clause */
/* CMSIS's variable, which the SDK's device headers declare. */
#ifndef FSL_COMMON_H
#define FSL_COMMON_H

#include <stdint.h>

extern uint32_t SystemCoreClock;

#endif
