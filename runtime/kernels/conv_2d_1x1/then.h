/* SPDX-License-Identifier: BSD-3-Clause */
/* A pointwise convolution and an operator of its result in one call: both kernels run on one window, one after the other, the
 * second one in place. */
#ifndef NEUTRON_CONV_2D_1X1_THEN_H
#define NEUTRON_CONV_2D_1X1_THEN_H

#include <string.h>

#include "../kernel.h"

/* The words of the second kernel behind its buffers: those of the call's parameters from `first` on. */
#define NEUTRON_THEN_WORDS(to, first_of_to, p, first) \
    memcpy(&(to).first_of_to, &(p)->first, sizeof(to) - offsetof(__typeof__(to), first_of_to))

/* Runs the convolution, whose words are the first of the call's, and then a kernel with these parameters. */
static inline void neutron_conv_2d_1x1_then(const NeutronKernelCall *call, NeutronKernelRun then, const void *params) {
    conv_2d_1x1_s8_run(call);
    NeutronKernelCall second = *call;
    second.params = params;
    then(&second);
}

#endif
