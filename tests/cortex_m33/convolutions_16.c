/* SPDX-License-Identifier: BSD-3-Clause */
/* convolutions.c for the kernels on int16. */
#define RANDOM_CONVOLUTIONS "random_convolutions_16.h"
#define RUN_CASE run_case_16
#include "convolutions.c"
