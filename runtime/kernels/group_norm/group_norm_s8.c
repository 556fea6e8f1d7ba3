/* SPDX-License-Identifier: BSD-3-Clause */
/* Group norm and instance norm of int8 activations. */
#include "image.h"

bool group_norm_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    return group_norm_check(program, params_block, window, 1);
}

void group_norm_s8_run(const NeutronKernelCall *call) { group_norm_run(call, call->params, 1); }
