/* SPDX-License-Identifier: BSD-3-Clause */
/* layer_norm_s8, then feed_forward_s8 of its result. */
#include "chain.h"

static const NeutronLink FIRST = NEUTRON_NORM_LINK;
static const NeutronLink SECOND = NEUTRON_FEED_FORWARD_LINK;

NEUTRON_CHAIN(layer_norm_feed_forward_s8, layer_norm_s8, feed_forward_s8, NeutronFeedForwardS8)
