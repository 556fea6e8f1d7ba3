# SPDX-License-Identifier: BSD-3-Clause
"""A node's arguments by the names of its schema."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from openneutron.pytorch.graph.program import overload_of


def arguments_of(node: Node) -> dict[str, Any]:
    """Every argument of a call, with the schema's defaults for those not given."""
    overload = overload_of(node)
    assert overload is not None
    arguments = overload._schema.arguments
    found = {item.name: item.default_value for item in arguments if item.has_default_value()}
    found |= {item.name: value for item, value in zip(arguments, node.args, strict=False)}
    return found | dict(node.kwargs)


def pair(item: Any, absent: Any = None) -> tuple[int, int]:
    """(rows, columns) of an argument that is a number, one number in a list, or two; ``absent`` for an empty list."""
    if isinstance(item, int):
        return item, item
    if not item:
        return pair(absent)
    return (item[0], item[0]) if len(item) == 1 else (item[0], item[1])
