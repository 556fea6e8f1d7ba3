# SPDX-License-Identifier: BSD-3-Clause
"""Factors that are functions of one value multiply each other before they multiply a larger tensor: together they are one table.

The squash of a capsule network is ``n / (1 + n) * s / sqrt(n)``, where n is the squared length of each vector s. The reciprocal of the
root alone has no upper end, which would leave no steps for longer vectors; its product with the other factor is at most 1/2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from openneutron.pytorch.graph.pointwise import is_pointwise
from openneutron.pytorch.graph.rewriting import NodePass, add_call

_MUL = torch.ops.aten.mul.Tensor


@dataclass(frozen=True, slots=True)
class JoinFactors(NodePass):
    """Rewrite ``(f(n) * s) * g(n)`` as ``s * (f(n) * g(n))`` where n has fewer elements than s. keep: calls to leave alone."""

    keep: Callable[[Node], bool] | None = None

    targets = (_MUL,)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        for inner, factor in (node.args, node.args[::-1]):
            if not isinstance(inner, Node) or inner.target is not _MUL or len(inner.users) != 1:
                continue
            for first, data in (inner.args, inner.args[::-1]):
                if not self._are_factors(first, factor, data) or (self.keep and (self.keep(node) or self.keep(inner))):
                    continue
                both = add_call(module, node, _MUL, first, factor)
                node.replace_all_uses_with(add_call(module, node, _MUL, data, both))
                module.graph.erase_node(node)
                return True
        return False

    def _are_factors(self, first: object, factor: object, data: object) -> bool:
        values = [item.meta.get("val") for item in (first, factor, data) if isinstance(item, Node)]
        tensors = [value for value in values if isinstance(value, Tensor) and value.dtype == torch.float32]
        if len(tensors) < 3:
            return False
        f, g, s = tensors
        if f.shape != g.shape or f.numel() >= s.numel():
            return False
        roots = _roots(first)
        return len(roots) == 1 and roots == _roots(factor)


def _roots(node: Node) -> set[Node]:
    """Return the computed values of a node's shape that the node is a pointwise function of."""
    if not is_pointwise(node):
        return {node}
    shape = node.meta["val"].shape
    sources = [source for source in node.all_input_nodes if source.op != "get_attr"]
    if not sources or any(source.meta["val"].shape != shape for source in sources):
        return {node}
    return set().union(*map(_roots, sources))
