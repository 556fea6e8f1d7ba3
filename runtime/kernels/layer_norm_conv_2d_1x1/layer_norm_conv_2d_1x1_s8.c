/* SPDX-License-Identifier: BSD-3-Clause */
/* layer_norm_s8, then conv_2d_1x1_s8 of its result. */
#include "chain.h"

static const NeutronPair PAIR = {NEUTRON_NORM_LINK, NEUTRON_LINEAR_LINK(NeutronConv2d1x1S8), true};

NEUTRON_CHAIN_COPYING_FIRST(layer_norm_conv_2d_1x1_s8, layer_norm_s8, conv_2d_1x1_s8, NeutronLayerNormS8)
