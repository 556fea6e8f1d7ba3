# SPDX-License-Identifier: BSD-3-Clause
"""Casts and what export puts beside them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

_aten = torch.ops.aten

_ASSERTIONS = (_aten._assert_tensor_metadata.default, _aten._assert_async.default, _aten._assert_async.msg)
"""Assertions on types and layouts, and on values; ExecuTorch's runtime has no kernels for them."""


@dataclass(frozen=True, slots=True)
class PlainCasts:
    """Rewrite ``x.to(dtype)`` to the operator that only casts, or to ``x`` where that has the type already, and remove
    assertions.

    Export adds assertions on types and layouts beside the other form; they are true in any graph with fixed types.
    """

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
    """Return whether a cast returns its input itself."""
    return len(node.args) == 2 and not node.kwargs and node.meta["val"].dtype == node.args[0].meta["val"].dtype
