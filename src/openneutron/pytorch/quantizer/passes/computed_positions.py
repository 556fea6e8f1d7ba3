# SPDX-License-Identifier: BSD-3-Clause
"""Selections at positions that the model computes, as the decoders of keypoint detectors write them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.graph.rewriting import add_call, finished

_aten = torch.ops.aten

_CHECKS = (_aten._assert_scalar.default, _aten.sym_constrain_range.default, _aten.sym_constrain_range_for_size.default)


@dataclass(frozen=True, slots=True)
class ComputedPositions:
    """Rewrite ``x[i]``, where ``i`` is an element of a tensor, from a selection by a number, whose bounds no program can be made for
    ahead of the run, to a lookup. A lookup takes positions from 0 on alone."""

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
