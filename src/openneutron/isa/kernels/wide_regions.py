# SPDX-License-Identifier: BSD-3-Clause
"""Kernels that compute an int16 element from a region of the input, or copy regions."""

from __future__ import annotations

from openneutron.isa.kernels.elements import IDENTITY
from openneutron.isa.kernels.regions import MAPS, MAPS_OF_TWO
from openneutron.isa.kernels.row import WIDE_INPUT_AND_OUTPUT, CostClass, Mapped, Row, Work, of_one_input

KERNELS = (
    Row(
        "copy_s16",
        "Element (n, r, c, k) of the input to the same place of the output, where elements of two bytes are not side by side.",
        WIDE_INPUT_AND_OUTPUT,
        74,
        traits=IDENTITY,
    ),
    Row(
        "resize_bilinear_s16",
        "Each output element is a mean of four int16 elements, weighted by 10 bits for rows and 10 for columns.",
        (*WIDE_INPUT_AND_OUTPUT, *MAPS_OF_TWO),
        82,
        traits=of_one_input(Mapped("map", maps=2), Work(CostClass.PER_OUTPUT, steps=4)),
        packings=MAPS,
    ),
)
