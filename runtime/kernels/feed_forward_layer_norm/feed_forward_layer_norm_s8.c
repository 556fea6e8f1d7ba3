/* SPDX-License-Identifier: BSD-3-Clause */
/* feed_forward_s8, then layer_norm_s8 of its result. */
#include "chain.h"

static const NeutronPair PAIR = {NEUTRON_FEED_FORWARD_LINK, NEUTRON_NORM_LINK, false};

NEUTRON_CHAIN_COPYING_SECOND(feed_forward_layer_norm_s8, feed_forward_s8, layer_norm_s8, NeutronLayerNormS8)
