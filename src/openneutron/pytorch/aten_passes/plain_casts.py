# SPDX-License-Identifier: BSD-3-Clause
"""Casts and what export puts beside them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

_aten = torch.ops.aten

_ASSERTIONS = (_aten._assert_tensor_metadata.default, _aten._assert_async.default, _aten._assert_async.msg)
"""Of types and layouts, and of values; ExecuTorch's runtime has no kernels for them."""


@dataclass(frozen=True, slots=True)
class PlainCasts:
    """Rewrites ``x.to(dtype)`` to the operator that only casts, or to ``x`` where that has the type already, and takes out
    assertions. Those on types and layouts, which export adds beside the other form, are true of any graph with fixed types."""

    def __call__(self, module: GraphModule) -> PassResult:
        changed = False
        for node in list(module.graph.nodes):
            if node.op != "call_function":
                continue
            if node.target in _ASSERTIONS:
                module.graph.erase_node(node)
                changed = True
            elif node.target is _aten.to.dtype and _casts_nothing(node):
                node.replace_all_uses_with(node.args[0])
                module.graph.erase_node(node)
                changed = True
            elif node.target is _aten.to.dtype and node.meta["val"].dtype != node.args[0].meta["val"].dtype:
                node.target, node.args, node.kwargs = (
                    _aten._to_copy.default,
                    node.args[:1],
                    {"dtype": node.meta["val"].dtype},
                )
                changed = True
        if changed:
            module.recompile()
        return PassResult(module, changed)


def _casts_nothing(node: Node) -> bool:
    """Whether a cast hands back its input itself."""
    return len(node.args) == 2 and not node.kwargs and node.meta["val"].dtype == node.args[0].meta["val"].dtype
