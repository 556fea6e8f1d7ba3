# SPDX-License-Identifier: BSD-3-Clause
"""Rewrite casts, and remove the assertions that export puts beside them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node

from openneutron.pytorch.graph.rewriting import NodePass, add_call, add_constant, constant_of

_aten = torch.ops.aten

_ASSERTIONS = (_aten._assert_tensor_metadata.default, _aten._assert_async.default, _aten._assert_async.msg)
"""Assertions on types and layouts, and on values; ExecuTorch's runtime has no kernels for them."""


@dataclass(frozen=True, slots=True)
class PlainCasts(NodePass):
    """Rewrite ``x.to(dtype)`` to the operator that only casts, or to ``x`` where that has the type already, and remove
    assertions.

    Export adds assertions on types and layouts beside the other form; they are true in any graph with fixed types.
    """

    targets = (*_ASSERTIONS, _aten.to.dtype)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        if node.target in _ASSERTIONS:
            module.graph.erase_node(node)
            return True
        source = node.args[0]
        assert isinstance(source, Node)
        if node.meta["val"].dtype != source.meta["val"].dtype:
            node.target, node.args = _aten._to_copy.default, (source,)
            node.kwargs = {"dtype": node.meta["val"].dtype}
            return True
        if len(node.args) > 2 or node.kwargs:
            return False
        node.replace_all_uses_with(source)
        module.graph.erase_node(node)
        return True


_CASTS = (_aten._to_copy.default, _aten.to.dtype)


@dataclass(frozen=True, slots=True)
class CastRows(NodePass):
    """Cast constant tables before a lookup, not its result, and remove casts through integers.

    Rewrite ``embedding(table, index).to(dtype)`` to ``embedding(table.to(dtype), index)`` where the table is a
    constant, and ``mask.to(integer).to(float)`` to ``mask.to(float)``. The float one-hot vectors of positions are then
    one lookup."""

    targets = _CASTS

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        source = node.args[0]
        if not isinstance(source, Node) or not isinstance(node.meta.get("val"), torch.Tensor):
            return False
        if source.target is _aten.embedding.default:
            return _cast_table(module, node, source)
        if not _is_cast_boolean(source) or not node.meta["val"].is_floating_point():
            return False
        (boolean,) = source.all_input_nodes
        node.replace_input_with(source, boolean)
        return True


def _cast_table(module: GraphModule, node: Node, lookup: Node) -> bool:
    table = constant_of(module, lookup.args[0])
    if table is None or len(lookup.args) != 2 or lookup.kwargs:
        return False
    cast = add_constant(module, node, f"{lookup.name}_rows", table.to(node.meta["val"].dtype))
    rows = add_call(module, node, _aten.embedding.default, cast, lookup.args[1])
    node.replace_all_uses_with(rows)
    return True


def _is_cast_boolean(node: Node) -> bool:
    """Return whether a node casts booleans to integers."""
    if node.target not in _CASTS or not isinstance(node.args[0], Node):
        return False
    before, here = (item.meta["val"].dtype for item in (node.args[0], node))
    return before == torch.bool and not here.is_floating_point and here != torch.bool
