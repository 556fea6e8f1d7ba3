/* SPDX-License-Identifier: BSD-3-Clause */
/* layer_norm_s8, then feed_forward_s8 of its result. */
#include "chain.h"

static const NeutronPair PAIR = {NEUTRON_NORM_LINK, NEUTRON_FEED_FORWARD_LINK, true};

NEUTRON_CHAIN_COPYING_FIRST(layer_norm_feed_forward_s8, layer_norm_s8, feed_forward_s8, NeutronLayerNormS8)
