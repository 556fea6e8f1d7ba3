# SPDX-License-Identifier: BSD-3-Clause
"""Cast constant tables before a lookup, not its result, and remove casts through integers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.graph.constants import add_constant, constant_of
from openneutron.pytorch.graph.rewriting import add_call, finished

_aten = torch.ops.aten
_CASTS = (_aten._to_copy.default, _aten.to.dtype)


@dataclass(frozen=True, slots=True)
class CastRows:
    """Rewrite ``embedding(table, index).to(dtype)`` to ``embedding(table.to(dtype), index)`` where the table is a
    constant, and ``mask.to(integer).to(float)`` to ``mask.to(float)``. The float one-hot vectors of positions are then
    one lookup."""

    def __call__(self, module: GraphModule) -> PassResult:
        changed = False
        for node in list(module.graph.nodes):
            source = node.args[0] if node.target in _CASTS else None
            if not isinstance(source, Node) or not isinstance(node.meta.get("val"), torch.Tensor):
                continue
            if source.target is _aten.embedding.default:
                changed |= _cast_table(module, node, source)
            elif _is_number_of_truth(source) and node.meta["val"].is_floating_point():
                node.replace_input_with(source, source.args[0])
                changed = True
        return finished(module, changed)


def _cast_table(module: GraphModule, node: Node, lookup: Node) -> bool:
    table = constant_of(module, lookup.args[0])
    if table is None or len(lookup.args) != 2 or lookup.kwargs:
        return False
    cast = add_constant(module, node, f"{lookup.name}_rows", table.to(node.meta["val"].dtype))
    rows = add_call(module, node, _aten.embedding.default, cast, lookup.args[1])
    node.replace_all_uses_with(rows)
    return True


def _is_number_of_truth(node: Node) -> bool:
    """Return whether a node casts booleans to integers."""
    if node.target not in _CASTS or not isinstance(node.args[0], Node):
        return False
    before, here = (item.meta["val"].dtype for item in (node.args[0], node))
    return before == torch.bool and not here.is_floating_point and here != torch.bool
