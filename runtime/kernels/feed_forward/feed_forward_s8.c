/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_1x1_lookup_s8, then conv_2d_1x1_add_s8 of its result: two linear layers, with an activation between them and a
 * residual sum behind them. */
#include "chain.h"

static const NeutronPair PAIR = {NEUTRON_LINEAR_LINK(NeutronConv2d1x1LookupS8), NEUTRON_LINEAR_LINK(NeutronConv2d1x1AddS8), true};

NEUTRON_CHAIN_COPYING_FIRST(feed_forward_s8, conv_2d_1x1_lookup_s8, conv_2d_1x1_add_s8, NeutronConv2d1x1LookupS8)
