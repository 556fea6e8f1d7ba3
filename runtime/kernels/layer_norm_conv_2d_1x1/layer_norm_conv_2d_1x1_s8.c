/* SPDX-License-Identifier: BSD-3-Clause */
/* layer_norm_s8, then conv_2d_1x1_s8 of its result. */
#include "chain.h"

static const NeutronLink FIRST = NEUTRON_NORM_LINK;
static const NeutronLink SECOND = NEUTRON_LINEAR_LINK(NeutronConv2d1x1S8);

NEUTRON_CHAIN(layer_norm_conv_2d_1x1_s8, layer_norm_s8, conv_2d_1x1_s8, NeutronConv2d1x1S8)
