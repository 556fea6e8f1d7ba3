/* SPDX-License-Identifier: BSD-3-Clause */
/* Group norm and instance norm of int16 activations. */
#include "image.h"

bool group_norm_s16_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    return group_norm_check(program, params_block, window, 2);
}

void group_norm_s16_run(const NeutronKernelCall *call) { group_norm_run(call, call->params, 2); }
