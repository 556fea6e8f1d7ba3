# SPDX-License-Identifier: BSD-3-Clause
"""Attributes that a file leaves out have the schema's default value."""

from __future__ import annotations

import pytest
from ai_edge_litert import schema_py_generated as schema

from openneutron.ops import OPS, Attribute, Op

NUMBERS = [
    (op, item)
    for op in OPS
    if hasattr(schema, f"{op.options_table}T")
    for item in op.attributes
    if isinstance(item.default, int | float)
]


@pytest.mark.parametrize(("op", "attribute"), NUMBERS, ids=[f"{op.name}-{item.name}" for op, item in NUMBERS])
def test_a_number_that_the_schema_gives_is_the_default(op: Op, attribute: Attribute) -> None:
    """Defaults except zeros, which mean that no value is set: a stride of 0 is invalid."""
    value = getattr(getattr(schema, f"{op.options_table}T")(), attribute.litert_field)
    assert not value or value == attribute.default
