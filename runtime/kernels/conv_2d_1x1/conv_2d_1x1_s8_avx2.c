/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_1x1_s8 for AVX2. */
#include "conv_2d/avx2.h"

#if NEUTRON_X86_VARIANTS
bool conv_2d_1x1_s8_run_avx2(const NeutronKernelCall *call) { return neutron_convolve_avx2(call); }
#endif
