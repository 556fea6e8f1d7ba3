# SPDX-License-Identifier: BSD-3-Clause
"""Selections at positions that the model computes, as the decoders of keypoint detectors write them."""

from __future__ import annotations

import operator
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.graph.rewriting import add_call, finished

_aten = torch.ops.aten

_POSITIONS = (_aten.argmax.default, _aten.argmin.default)
_SEVERAL = (_aten.topk.default, _aten.sort.default, _aten.max.dim, _aten.min.dim)
"""Operators whose second result are positions."""

_MOVES = frozenset(
    (
        _aten.select.int,
        _aten.slice.Tensor,
        _aten.reshape.default,
        _aten.view.default,
        _aten.flatten.using_ints,
        _aten.squeeze.default,
        _aten.squeeze.dim,
        _aten.to.dtype,
        _aten._to_copy.default,
    )
)

_CHECKS = (_aten._assert_scalar.default, _aten.sym_constrain_range.default, _aten.sym_constrain_range_for_size.default)


@dataclass(frozen=True, slots=True)
class ComputedPositions:
    """Rewrite ``x[i]``, where ``i`` is an element of a tensor, from a selection by a number, whose bounds no program can be made for
    ahead of the run, to a lookup. A lookup takes positions from 0 on alone: others count from the end first."""

    targets: ClassVar[Collection[object]] = (_aten.item.default,)

    def __call__(self, module: GraphModule) -> PassResult:
        changed = False
        for node in list(module.graph.find_nodes(op="call_function", target=_aten.select.int)):
            data, axis, position = node.args
            if not isinstance(position, Node) or position.target is not _aten.item.default:
                continue
            index = position.args[0]
            assert isinstance(index, Node) and isinstance(data, Node) and isinstance(axis, int)
            value, held = data.meta.get("val"), index.meta.get("val")
            if not isinstance(value, torch.Tensor) or not isinstance(held, torch.Tensor):
                continue
            if held.dtype not in (torch.int32, torch.int64):
                continue
            extent = value.shape[axis]
            if not isinstance(extent, int):
                continue
            if not _is_from_zero(index):
                index = add_call(module, node, _aten.remainder.Scalar, index, extent)
            row = add_call(module, node, _aten.reshape.default, index, [1])
            taken = add_call(module, node, _aten.index_select.default, data, axis, row)
            found = add_call(module, node, _aten.squeeze.dims, taken, [axis])
            node.replace_all_uses_with(found)
            module.graph.erase_node(node)
            changed = True
        for node in module.graph.find_nodes(op="call_function", target=_aten.item.default) if changed else ():
            if all(user.target in _CHECKS for user in node.users):
                for each in (*node.users, node):
                    module.graph.erase_node(each)
        return finished(module, changed)


def _is_from_zero(node: object) -> bool:
    """Return whether the integers of a node are known to be no less than 0."""
    if not isinstance(node, Node) or node.op != "call_function":
        return False
    if node.target in _POSITIONS:
        return True
    source = node.args[0]
    if node.target is operator.getitem:
        return isinstance(source, Node) and source.target in _SEVERAL and node.args[1] == 1
    if node.target in (_aten.remainder.Scalar, _aten.floor_divide.default):
        divisor = node.args[1]
        is_positive = isinstance(divisor, int) and divisor > 0
        return is_positive and (node.target is _aten.remainder.Scalar or _is_from_zero(source))
    return node.target in _MOVES and _is_from_zero(source)
