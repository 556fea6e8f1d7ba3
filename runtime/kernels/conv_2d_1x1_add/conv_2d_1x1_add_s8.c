/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_1x1_s8, then add_s8 on its output in place. */
#include "then.h"

NEUTRON_THEN(conv_2d_1x1, add_s8, NeutronConv2d1x1AddS8, NeutronAddS8, input_a, a_zero_point, .input_b = p->then_input_b)
