# SPDX-License-Identifier: BSD-3-Clause
"""Kernels that go through int16 operands element by element; int16 has no zero points."""

from __future__ import annotations

from openneutron.isa.kernels.elements import of_elements, rescaled
from openneutron.isa.kernels.row import CLAMP, RESCALING, WIDE_OPERANDS_AND_OUTPUT, Row

_OF_TWO = of_elements("input_a", "input_b")

KERNELS = (
    Row(
        "add_s16",
        "Sum of two int16 tensors, each shifted left by 15 bits and rescaled to a common scale (LiteRT ADD and SUB).",
        (
            *WIDE_OPERANDS_AND_OUTPUT,
            *rescaled(b="fixed point, 31 fractional bits; where it is negative, b times its magnitude is subtracted"),
            *RESCALING,
            *CLAMP,
        ),
        68,
        traits=_OF_TWO,
    ),
)
