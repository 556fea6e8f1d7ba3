/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_1x1_add_s8, then layer_norm_s8 of its result. */
#include "chain.h"

static const NeutronPair PAIR = {NEUTRON_LINEAR_LINK(NeutronConv2d1x1AddS8), NEUTRON_NORM_LINK, false};

NEUTRON_CHAIN_COPYING_SECOND(conv_2d_1x1_add_layer_norm_s8, conv_2d_1x1_add_s8, layer_norm_s8, NeutronLayerNormS8)
