# SPDX-License-Identifier: BSD-3-Clause
"""Fields that several kernels' parameter blocks share."""

from openneutron.isa.kernels.row import buffer, signed

CLAMP = (
    signed("clamp_min", "fused activation's lower bound, stored"),
    signed("clamp_max", "fused activation's upper bound, stored; not below clamp_min"),
)
OUTPUT_RANGE = (signed("output_zero_point", "added after requantization"), *CLAMP)

INPUT_AND_OUTPUT = (buffer("input", "int8"), buffer("output", "int8"))
OPERANDS = (
    buffer("input_a", "int8; a pitch of 0 broadcasts"),
    buffer("input_b", "int8; a pitch of 0 broadcasts"),
)
