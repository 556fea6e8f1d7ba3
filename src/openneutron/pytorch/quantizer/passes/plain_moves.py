# SPDX-License-Identifier: BSD-3-Clause
"""Rewrite data movement to the forms that ExecuTorch keeps, so that ExecuTorch need not decompose the program again."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

_aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class PlainMoves:
    """Rewrite ``transpose`` and ``t`` to ``permute``, and ``squeeze`` of one axis to ``squeeze`` of a list of axes."""

    def __call__(self, module: GraphModule) -> PassResult:
        changed = False
        for node in module.graph.nodes:
            changed |= node.op == "call_function" and not node.kwargs and _rewrite(node)
        if changed:
            module.recompile()
        return PassResult(module, changed)


def _rewrite(node: Node) -> bool:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return False
    if node.target in (_aten.transpose.int, _aten.t.default):
        order = list(range(value.dim()))
        if order:
            one, other = node.args[1:] if len(node.args) == 3 else (0, -1)
            order[one], order[other] = order[other], order[one]
        node.target, node.args = _aten.permute.default, (node.args[0], order)
        return True
    if node.target is _aten.squeeze.dim:
        node.target, node.args = _aten.squeeze.dims, (node.args[0], [node.args[1]])
        return True
    return False
