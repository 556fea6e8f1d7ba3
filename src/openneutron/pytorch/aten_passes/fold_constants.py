# SPDX-License-Identifier: BSD-3-Clause
"""What depends on constants alone is computed now: weights made of weights, ranges, constant masks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.aten_passes.constants import add_constant, constant_of
from openneutron.pytorch.aten_passes.rewriting import finished

LARGEST = 1 << 24
"""Elements of a result that is still worth keeping instead of its recipe."""


@dataclass(frozen=True, slots=True)
class FoldConstants:
    """Replaces each node that only constants lead to by its value."""

    def __call__(self, module: GraphModule) -> PassResult:
        changed = False
        for node in list(module.graph.nodes):
            value = _value_of(module, node)
            if value is None:
                continue
            constant = add_constant(module, node, f"{node.name}_folded", value)
            constant.meta = {**node.meta, **constant.meta}
            node.replace_all_uses_with(constant)
            module.graph.erase_node(node)
            changed = True
        return finished(module, changed)


def _value_of(module: GraphModule, node: Node) -> torch.Tensor | None:
    overload, told = node.target, node.meta.get("val")
    if node.op != "call_function" or not isinstance(overload, torch._ops.OpOverload):
        return None
    if overload._schema.is_mutable or torch.Tag.nondeterministic_seeded in overload.tags:
        return None
    if not isinstance(told, torch.Tensor) or not all(isinstance(extent, int) for extent in told.shape):
        return None
    if told.numel() > LARGEST:
        return None
    constants = {source: constant_of(module, source) for source in node.all_input_nodes}
    if any(value is None for value in constants.values()):
        return None
    args, kwargs = (map_arg(item, lambda source: constants[source]) for item in (node.args, node.kwargs))
    with torch.no_grad():
        value = overload(*args, **kwargs)
    return value.detach().clone() if isinstance(value, torch.Tensor) else None
