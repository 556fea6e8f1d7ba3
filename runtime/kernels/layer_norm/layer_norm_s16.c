/* SPDX-License-Identifier: BSD-3-Clause */
/* Layer norm and RMS norm of int16 activations. */
#include "line.h"

bool layer_norm_s16_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    return layer_norm_check(program, params_block, window, 2);
}

void layer_norm_s16_run(const NeutronKernelCall *call) { layer_norm_run(call, call->params, 2); }
