# SPDX-License-Identifier: BSD-3-Clause
"""Traits name what the kernels' rows have, and every pattern and cost class has its rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import get_args

import pytest

from openneutron.compiler.cost import cycles
from openneutron.compiler.select import needs
from openneutron.isa.kernels.row import NOTHING_DECLARED, Access, CostClass, Mapped, Row
from openneutron.isa.rows import KERNELS

EVERY_KERNEL = pytest.mark.parametrize("row", KERNELS, ids=lambda row: row.name)


def test_every_access_pattern_and_every_cost_class_has_a_rule() -> None:
    assert set(needs.RULES) == set(get_args(Access))
    assert set(cycles.RULES) == set(CostClass)


@EVERY_KERNEL
def test_operands_and_results_are_the_buffers(row: Row) -> None:
    assert row.traits is not NOTHING_DECLARED
    named = ["output", *(operand.name for operand in row.traits.operands)]
    assert sorted(named) == sorted(column.name for column in row.fields if column.refers == "buffer")
    maps = [item.access for item in row.traits.operands if isinstance(item.access, Mapped)]
    assert all(row.places[f"{access.constant}_offset"] for access in maps)


@EVERY_KERNEL
def test_parameters_in_traits_are_fields(row: Row) -> None:
    stated = {column.name for column in row.fields if not column.refers}
    traits = row.traits
    parts = [
        traits.cost,
        traits.channels,
        *(item.access for item in traits.operands if not isinstance(item.access, Mapped)),
    ]
    assert {name for part in parts for name in _names(part)} <= stated
    assert {name for pair in traits.exchanged or () for name in pair} <= stated


def _names(part: object) -> Iterator[str]:
    """Every name inside an access pattern, a cost class or a rule of channels."""
    if isinstance(part, str):
        yield from [part] if part else []
    elif isinstance(part, tuple):
        for each in part:
            yield from _names(each)
    elif is_dataclass(part):
        for field in fields(part):
            yield from _names(getattr(part, field.name))
