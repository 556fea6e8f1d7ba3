/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_1x1_s8, then lookup_s8 on its output in place. */
#include "then.h"

NEUTRON_THEN(conv_2d_1x1, lookup_s8, NeutronConv2d1x1LookupS8, NeutronLookupS8, input, table_base, .table_base = p->then_table_base)
