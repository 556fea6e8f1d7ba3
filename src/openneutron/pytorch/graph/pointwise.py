# SPDX-License-Identifier: BSD-3-Clause
"""Functions of one value: what PyTorch computes element by element from a single tensor.

Whatever such a function is, on int8 it is a table of 256 entries, and on int16 one of 513 unless it jumps. Several in a row,
or several paths from one tensor to one result (``x * sigmoid(x)``), are one function and one table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from openneutron.pytorch.graph.program import overload_of

SAME = frozenset(
    ("aten::alias", "aten::alias_copy", "aten::clone", "aten::contiguous", "aten::detach", "aten::detach_copy",
     "aten::lift_fresh_copy", "dim_order_ops::_clone_dim_order")
)  # fmt: skip
"""Operators whose result is their input."""

CASTS = frozenset(("aten::_to_copy", "aten::to", "dim_order_ops::_to_dim_order_copy"))
"""Operators that give the same numbers another type."""

ALIKE = frozenset(("aten::full_like", "aten::ones_like", "aten::zeros_like"))
"""Operators that look at their input's shape alone."""


UNTAGGED = frozenset(
    f"aten::{name}"
    for name in ("divide", "hardswish", "log_sigmoid", "masked_fill", "multiply", "rsub", "special_expit", "subtract",
                 "true_divide", "where")
)  # fmt: skip
"""Operators that are pointwise although PyTorch has not tagged them so."""


STEPPED = frozenset(
    f"aten::{name}"
    for name in (
        "ceil",
        "floor",
        "floor_divide",
        "fmod",
        "frac",
        "heaviside",
        "remainder",
        "round",
        "sgn",
        "sign",
        "trunc",
    )
)
"""Operators whose results jump."""


def jumps(node: Node) -> bool:
    """Return whether a node's result may jump from one value to the next: the lines of an int16 table can't follow."""
    overload, value = overload_of(node), node.meta.get("val")
    name = "" if overload is None else overload._schema.name
    return name in STEPPED or (isinstance(value, torch.Tensor) and value.dtype == torch.bool)


def is_pointwise_operator(overload: torch._ops.OpOverload) -> bool:
    """Return whether each element of an operator's result depends on the elements at its own place alone, always in the
    same way."""
    if overload._schema.is_mutable or torch.Tag.nondeterministic_seeded in overload.tags:
        return False
    return torch.Tag.pointwise in overload.tags or overload._schema.name in SAME | CASTS | ALIKE | UNTAGGED


def is_pointwise(node: Node) -> bool:
    """Return whether a node calls such an operator."""
    overload = overload_of(node)
    return overload is not None and isinstance(node.meta.get("val"), torch.Tensor) and is_pointwise_operator(overload)


def is_real(node: Node) -> bool:
    """Return whether a node's result may stand inside a function: float32, or the booleans of a comparison."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in (torch.float32, torch.bool)


@dataclass(frozen=True, slots=True)
class Region:
    """A function of one value as nodes: ``nodes`` in execution order compute from ``root`` alone, the last one its result.

    Nothing outside reads any of them but the last.
    """

    root: Node
    nodes: tuple[Node, ...]

    @property
    def end(self) -> Node:
        return self.nodes[-1]


def find_regions(
    nodes: Sequence[Node], is_number: Callable[[Node], bool], runs_inside: Callable[[Node], Node | None]
) -> list[Region]:
    """Return the functions of one value among ``nodes`` (in execution order), as large as they can be.

    is_number: whether a node is one number, known now. runs_inside: the operator before a node that can take it in; a node is
    part of a function rather than that where that operator is part of it too.
    """
    region_of: dict[Node, Region] = {}
    for node in nodes:
        if not is_pointwise(node) or not is_real(node):
            continue
        host = runs_inside(node)
        if host is not None and host not in region_of:
            continue
        region = _joined(node, [source for source in node.all_input_nodes if not is_number(source)], region_of)
        if region is not None:
            region_of |= dict.fromkeys(region.nodes, region)
    found = {id(region): region for region in region_of.values()}
    return [region for region in found.values() if region.end.meta["val"].dtype == torch.float32]


def _joined(node: Node, sources: list[Node], region_of: dict[Node, Region]) -> Region | None:
    """Return the function that ends in ``node``, of the nearest tensor that allows one, or None."""
    ways = [[source, *([region_of[source].root] if source in region_of else [])] for source in sources]
    if len(ways) == 1 and len(ways[0]) == 2 and len(sources[0].users) == 1:
        ways = [ways[0][1:]]
    for root in ways[0] if ways else ():
        if any(root not in way for way in ways) or not _keeps_shape(root, node):
            continue
        inside: dict[Node, None] = {}
        for source in sources:
            if source is not root:
                inside |= dict.fromkeys(region_of[source].nodes)
        if all(user is node or user in inside for inner in inside for user in inner.users):
            return Region(root, (*inside, node))
    return None


def _keeps_shape(root: Node, node: Node) -> bool:
    value = root.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32 and value.shape == node.meta["val"].shape


def evaluate(nodes: Sequence[Node], known: dict[Node, torch.Tensor]) -> torch.Tensor:
    """Return what ``nodes`` compute of the values known of their sources, as the last one's result.

    Their own shapes don't matter: all values of ``known`` are of one shape, or single numbers.
    """
    for node in nodes:
        overload = overload_of(node)
        assert overload is not None
        if overload._schema.name in SAME:
            known[node] = known[node.all_input_nodes[0]]
        elif overload._schema.name in CASTS:
            known[node] = known[node.all_input_nodes[0]].to(node.meta["val"].dtype)
        else:
            args, kwargs = (map_arg(item, known.__getitem__) for item in (node.args, node.kwargs))
            known[node] = overload(*args, **{key: value for key, value in kwargs.items() if key != "memory_format"})
    return known[nodes[-1]]
