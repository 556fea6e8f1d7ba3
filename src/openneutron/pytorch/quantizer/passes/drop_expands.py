# SPDX-License-Identifier: BSD-3-Clause
"""Expansions that the arithmetic behind them does by itself, by broadcasting, are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.graph.rewriting import finished

_aten = torch.ops.aten
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
class DropExpands:
    """Rewrites ``x * y.expand_as(x)`` to ``x * y``, where the result's shape stays."""

    def __call__(self, module: GraphModule) -> PassResult:
        changed = False
        for node in list(module.graph.nodes):
            if node.target is _aten.expand.default:
                for user in list(node.users):
                    changed |= _drop(node, user)
        return finished(module, changed)


def _drop(expand: Node, user: Node) -> bool:
    source = expand.args[0]
    assert isinstance(source, Node)
    if not broadcasts(user, expand, source.meta["val"].shape):
        return False
    user.args = (*(source if item is expand else item for item in user.args[:2]), *user.args[2:])
    return True


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
