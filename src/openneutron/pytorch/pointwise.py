# SPDX-License-Identifier: BSD-3-Clause
"""Functions of one value: what PyTorch computes element by element from a single tensor.

Whatever such a function is, on int8 it is a table of 256 entries. Several in a row, or several paths from one tensor to one
result (``x * sigmoid(x)``), are one function and one table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.fx import Node

_ALIKE = frozenset(
    ("aten::clone", "aten::alias", "aten::detach", "aten::full_like", "aten::ones_like", "aten::zeros_like")
)
"""Operators that PyTorch does not call pointwise although each result depends on one element only."""


def overload_of(node: Node) -> torch._ops.OpOverload | None:
    """The ATen overload a node calls, of the edge dialect's wrapper too; None where it calls something else."""
    if node.op != "call_function":
        return None
    target = node.target if isinstance(node.target, torch._ops.OpOverload) else getattr(node.target, "_op", None)
    return target if isinstance(target, torch._ops.OpOverload) else None


def is_pointwise(node: Node) -> bool:
    """Whether each element of a node's one result depends on the elements at its own place alone, always in the same way."""
    overload = overload_of(node)
    if overload is None or overload._schema.is_mutable or not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    if torch.Tag.nondeterministic_seeded in overload.tags:
        return False
    return torch.Tag.pointwise in overload.tags or overload._schema.name in _ALIKE


def is_real(node: Node) -> bool:
    """Whether a node's result may stand inside a function: float32, or the truth values of a comparison."""
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
    nodes: list[Node], is_constant: Callable[[Node], bool], stands_alone: Callable[[Node], bool]
) -> list[Region]:
    """The functions of one value among ``nodes`` (in execution order), as large as they can be, without those whose result is
    no float.

    is_constant: what is one number, known now. stands_alone: calls that are to be no part of a function.
    """
    region_of: dict[Node, Region] = {}
    for node in nodes:
        if not is_pointwise(node) or not is_real(node) or stands_alone(node):
            continue
        sources = [source for source in node.all_input_nodes if not is_constant(source)]
        region = _joined(node, sources, region_of)
        if region is not None:
            region_of |= dict.fromkeys(region.nodes, region)
    found = dict.fromkeys(id(region) for region in region_of.values())
    regions = {id(region): region for region in region_of.values()}
    return [regions[key] for key in found if regions[key].end.meta["val"].dtype == torch.float32]


def _joined(node: Node, sources: list[Node], region_of: dict[Node, Region]) -> Region | None:
    """The function that ends in ``node``, from the nearest tensor it can be a function of; None where there is none."""
    if not sources:
        return None
    ways = [[source, *([region_of[source].root] if source in region_of else [])] for source in sources]
    if len(sources) == 1 and len(ways[0]) == 2 and len(sources[0].users) == 1:
        ways = [ways[0][1:]]
    for root in ways[0]:
        if any(root not in way for way in ways) or not _fits(root, node):
            continue
        inside: dict[Node, None] = {}
        for source in sources:
            if source is not root:
                inside |= dict.fromkeys(region_of[source].nodes)
        if all(user is node or user in inside for inner in inside for user in inner.users):
            return Region(root, (*inside, node))
    return None


def _fits(root: Node, node: Node) -> bool:
    """Whether the function keeps the root's shape."""
    value = root.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32 and value.shape == node.meta["val"].shape
