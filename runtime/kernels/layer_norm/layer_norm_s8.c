/* SPDX-License-Identifier: BSD-3-Clause */
/* Layer norm and RMS norm of int8 activations. */
#include "line.h"

bool layer_norm_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    return layer_norm_check(program, params_block, window, 1);
}

void layer_norm_s8_run(const NeutronKernelCall *call) { layer_norm_run(call, call->params, 1); }
