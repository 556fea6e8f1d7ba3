/* SPDX-License-Identifier: BSD-3-Clause */
/* feed_forward_s8, then layer_norm_s8 of its result. */
#include "chain.h"

static const NeutronLink FIRST = NEUTRON_FEED_FORWARD_LINK;
static const NeutronLink SECOND = NEUTRON_NORM_LINK;

NEUTRON_CHAIN(feed_forward_layer_norm_s8, feed_forward_s8, layer_norm_s8, NeutronLayerNormS8)
