/* SPDX-License-Identifier: BSD-3-Clause */
/* group_norm_by_sums_s8, then lookup_s8 on its output in place. */
#include "then.h"

NEUTRON_THEN(group_norm_by_sums, lookup_s8, NeutronGroupNormBySumsLookupS8, NeutronLookupS8, input, table_base,
             .table_base = p->then_table_base)
