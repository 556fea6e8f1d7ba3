# SPDX-License-Identifier: BSD-3-Clause
"""Positions at which an operator on the CPU reads, which stay float."""

from __future__ import annotations

from collections.abc import Set

from torch.fx import GraphModule, Node

from openneutron.pytorch.graph.pointwise import is_pointwise
from openneutron.pytorch.graph.program import STAYS_WHOLE, short_name
from openneutron.pytorch.operators.annotations import MOVES, argument
from openneutron.pytorch.quantizer.specs import is_float

READERS = {
    "aten.grid_sampler.default": 1,
    "aten.grid_sampler_2d.default": 1,
    "aten.grid_sampler_3d.default": 1,
    "torchvision.deform_conv2d.default": 2,
    "torchvision.roi_align.default": 1,
    "torchvision.roi_pool.default": 1,
}
"""Operators that stay on the CPU, and the argument that holds positions: a step of int8 would be a part of a pixel or several."""

MOST_COORDINATES = 4
"""Products and sums over at most this many elements, such as those of an affine map, belong to the arithmetic of positions."""

_PRODUCTS = ("aten.matmul.default", "aten.bmm.default", "aten.mm.default", "aten.linear.default")
_SUMS = ("aten.sum.dim_IntList", "aten.mean.dim")


def leave_positions_float(module: GraphModule, constants: Set[Node]) -> Set[Node]:
    """Return the nodes that compute nothing but such positions, back to the layer that the positions come from.

    Their reason for the CPU is noted.
    """
    found: dict[Node, Node] = {}
    for node in reversed(module.graph.nodes):
        if node.op != "call_function" or node in constants or not is_float(node) or not node.users:
            continue
        readers = [_reader(user, node, found) for user in node.users]
        first = readers[0]
        if first is None or None in readers or not _is_arithmetic(node):
            continue
        found[node] = first
        why = (f"it computes positions for {short_name(first)} on the CPU, for which int8 has too few steps", "")
        node.meta["custom"] = {**node.meta.get("custom", {}), STAYS_WHOLE: why}
    return found.keys()


def _reader(user: Node, node: Node, found: dict[Node, Node]) -> Node | None:
    """Return the operator that a user reads positions for; None where it reads something else."""
    if user in found:
        return found[user]
    place = READERS.get(str(user.target))
    return user if place is not None and argument(user, place) is node and user.args.count(node) == 1 else None


def _is_arithmetic(node: Node) -> bool:
    if is_pointwise(node) or str(node.target).removeprefix("aten.") in MOVES:
        return True
    if str(node.target) not in (*_PRODUCTS, *_SUMS) or not isinstance(node.args[0], Node):
        return False
    data, value = node.args[0].meta["val"], node.meta["val"]
    count = data.shape[-1] if str(node.target) in _PRODUCTS else data.numel() // max(value.numel(), 1)
    return bool(count <= MOST_COORDINATES)
