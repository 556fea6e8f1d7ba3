# SPDX-License-Identifier: BSD-3-Clause
"""Which variant of its kernel takes an operator: what the conditions in kernels.def say in C, said of decoded records."""

from __future__ import annotations

from collections.abc import Sequence

from openneutron.errors import InvalidProgramError
from openneutron.isa.kernels.row import Condition, Variant
from openneutron.isa.microcode import Record


def variant_of(operator: Record, buffers: Sequence[Record]) -> Variant | None:
    """The first variant that takes the operator; None where that is left to all of the kernel.

    Raises InvalidProgramError where the operator refers to a buffer that is not there: the driver refuses such a program.
    """
    for variant in operator.row.variants:
        if all(_is_met(condition, operator, buffers) for condition in variant.conditions):
            return variant
    return None


def _is_met(condition: Condition, operator: Record, buffers: Sequence[Record]) -> bool:
    field, dot, of_buffer = condition.field.partition(".")
    value = operator[field]
    if dot:
        if value >= len(buffers):
            raise InvalidProgramError(
                f"microcode: {operator.row.name} refers to buffer {value}; there are {len(buffers)}."
            )
        value = buffers[value][of_buffer]
    return value == condition.value
