# SPDX-License-Identifier: BSD-3-Clause
"""Declare kernels that compute a linear layer or a norm and the operator behind it in one call, for calls whose dispatch exceeds their work.

A joined kernel runs the two kernels one after the other on its window, the second one in place, with the same bytes.
"""

from __future__ import annotations

from dataclasses import replace

from openneutron.isa.kernels import elements, normalization, products
from openneutron.isa.kernels.row import Operand, Row, SameElement, Traits

THEN = "then_"
"""The prefix of the second kernel's fields."""

_ROWS = {row.name: row for row in (*products.KERNELS, *elements.KERNELS, *normalization.KERNELS)}
_WRITTEN = ("input", "input_a", "output")
"""The buffers of the second kernel that are the first one's output."""


def _joined(name: str, first: str, second: str, code: int) -> Row:
    own, behind = _ROWS[first], _ROWS[second]
    fields = tuple(
        replace(field, name=f"{THEN}{field.name}", doc=f"of {second}: {field.doc}")
        for field in behind.fields
        if field.name not in _WRITTEN
    )
    others = tuple(
        Operand(f"{THEN}{operand.name}", SameElement())
        for operand in behind.traits.operands
        if operand.name not in _WRITTEN
    )
    return Row(
        name,
        f"{first}, then {second} in place: the output is its `{'input_a' if others else 'input'}`.",
        (*own.fields, *fields),
        code,
        own.taps,
        traits=Traits(
            (*own.traits.operands, *others),
            replace(own.traits.cost, moved=1),
            own.traits.exchanged,
            own.traits.batches_apart,
            joins=(first, second),
        ),
        packings=own.packings,
    )


KERNELS = (
    _joined("conv_2d_1x1_lookup_s8", "conv_2d_1x1_s8", "lookup_s8", 47),
    _joined("conv_2d_1x1_add_s8", "conv_2d_1x1_s8", "add_s8", 48),
    _joined("conv_2d_1x1_mul_s8", "conv_2d_1x1_s8", "mul_s8", 49),
    _joined("group_norm_by_sums_lookup_s8", "group_norm_by_sums_s8", "lookup_s8", 50),
)
