/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_1x1_add_s8, then layer_norm_s8 of its result. */
#include "chain.h"

static const NeutronLink FIRST = NEUTRON_LINEAR_LINK(NeutronConv2d1x1AddS8);
static const NeutronLink SECOND = NEUTRON_NORM_LINK;

NEUTRON_CHAIN(conv_2d_1x1_add_layer_norm_s8, conv_2d_1x1_add_s8, layer_norm_s8, NeutronLayerNormS8)
