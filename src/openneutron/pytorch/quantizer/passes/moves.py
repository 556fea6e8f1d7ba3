# SPDX-License-Identifier: BSD-3-Clause
"""Rewrite data movement: to the forms that ExecuTorch keeps, and without expansions whose readers broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from openneutron.pytorch.graph.rewriting import NodePass

_aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class PlainMoves(NodePass):
    """Rewrite ``transpose`` and ``t`` to ``permute``, and ``squeeze`` of one axis to ``squeeze`` of a list of axes.

    ExecuTorch then need not decompose the program again."""

    targets = (_aten.transpose.int, _aten.t.default, _aten.squeeze.dim)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or node.kwargs:
            return False
        if node.target is _aten.squeeze.dim:
            node.target, node.args = _aten.squeeze.dims, (node.args[0], [node.args[1]])
            return True
        order: list[Any] = list(range(value.dim()))
        if order:
            one, other = node.args[1:] if len(node.args) == 3 else (0, -1)
            order[one], order[other] = order[other], order[one]
        node.target, node.args = _aten.permute.default, (node.args[0], order)
        return True


_BROADCASTING = frozenset(
    (
        _aten.add.Tensor,
        _aten.sub.Tensor,
        _aten.mul.Tensor,
        _aten.div.Tensor,
        _aten.maximum.default,
        _aten.minimum.default,
    )
)


@dataclass(frozen=True, slots=True)
class DropExpands(NodePass):
    """Rewrite ``x * y.expand_as(x)`` to ``x * y``, where the result's shape stays."""

    targets = (_aten.expand.default,)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        source = node.args[0]
        assert isinstance(source, Node)
        readers = [user for user in node.users if broadcasts(user, node, source.meta["val"].shape)]
        for user in readers:
            user.args = (*(source if item is node else item for item in user.args[:2]), *user.args[2:])
        return bool(readers)


def broadcasts(user: Node, operand: Node, shape: Sequence[int]) -> bool:
    """Return whether a node gives the same result if this operand has a smaller shape that broadcasts to the current
    one."""
    if user.target not in _BROADCASTING or len(user.args) < 2:
        return False
    shapes = [shape if item is operand else item.meta["val"].shape for item in user.args[:2] if _is_tensor(item)]
    if not all(isinstance(extent, int) for one in shapes for extent in one):
        return False
    return bool(torch.broadcast_shapes(*shapes) == user.meta["val"].shape)


def _is_tensor(item: object) -> bool:
    return isinstance(item, Node) and isinstance(item.meta.get("val"), Tensor)
