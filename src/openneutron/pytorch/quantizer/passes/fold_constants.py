# SPDX-License-Identifier: BSD-3-Clause
"""Compute values that depend on constants alone: weights made of weights, ranges, constant masks."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.fx.passes.infra.pass_base import PassResult
from torch.utils._pytree import tree_leaves

from openneutron.pytorch.graph.program import arguments_of
from openneutron.pytorch.graph.rewriting import add_constant, constant_of, finished
from openneutron.pytorch.quantizer.passes.exported_forms import broadcasts

LARGEST = 1 << 24
"""The limit on elements of an intermediate tensor between constants."""

MOST_ELEMENTS = 1 << 22
"""The limit on elements of a constant made of ranges, numbers or smaller constants: 4 MiB as int8, a mask of 2048 x
2048. A larger constant, if it is also larger than its sources, is computed when the model runs."""

SMALL = 1 << 12
"""The number of elements up to which a constant is not searched for equal rows."""

Value: TypeAlias = torch.Tensor | tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class FoldConstants:
    """Replace nodes that depend only on constants by their values, where another node reads them.

    A constant that arithmetic reads keeps one element along each axis on which its values repeat.
    """

    def __call__(self, module: GraphModule) -> PassResult:
        known: dict[Node, Value] = {}
        sizes: dict[Node, Mapping[str, int]] = {}
        for node in module.graph.nodes:
            value = constant_of(module, node) if node.op == "get_attr" else _value_of(node, known)
            if value is None:
                continue
            known[node] = value
            sizes[node] = (
                {str(node.target): value.numel()} if isinstance(value, torch.Tensor) and node.op == "get_attr" else {}
            )
            for source in node.all_input_nodes:
                sizes[node] = {**sizes[node], **sizes[source]}
        changed = False
        for node in reversed(list(module.graph.nodes)):
            if node.op != "call_function" or node not in known or all(user in known for user in node.users):
                continue
            value = known[node]
            smallest = _without_repeats(node, value) if isinstance(value, torch.Tensor) else None
            if smallest is None or smallest.numel() > max(MOST_ELEMENTS, sum(sizes[node].values())):
                del known[node]  # computed when the model runs, from its sources
                continue
            constant = add_constant(module, node, f"{node.name}_folded", smallest)
            constant.meta = {**node.meta, "val": constant.meta.get("val")}
            known[constant] = smallest
            node.replace_all_uses_with(constant)
            changed = True
        return finished(module, changed)


def _value_of(node: Node, known: Mapping[Node, Value]) -> Value | None:
    """Return the result of a call whose tensors are all known; None where one is unknown, or the call is no plain
    function of them."""
    if node.op != "call_function" or any(source not in known for source in node.all_input_nodes):
        return None
    args, kwargs = (map_arg(item, known.__getitem__) for item in (node.args, node.kwargs))
    if node.target is operator.getitem:
        return args[0][args[1]]
    told = tree_leaves(node.meta.get("val"))
    if not isinstance(node.target, torch._ops.OpOverload) or not _is_function(node, node.target) or not told:
        return None
    if not all(isinstance(item, torch.Tensor) and _is_of_fixed_size(item) for item in told):
        return None
    with torch.no_grad():
        value = node.target(*args, **kwargs)
    if isinstance(value, torch.Tensor):
        return value.detach()
    return tuple(item.detach() for item in value) if isinstance(value, (list, tuple)) else None


def _is_of_fixed_size(value: torch.Tensor) -> bool:
    return all(isinstance(extent, int) for extent in value.shape) and value.numel() <= LARGEST


def _is_function(node: Node, overload: torch._ops.OpOverload) -> bool:
    """Return whether the result depends only on the arguments, as that of dropout outside training does."""
    if overload._schema.is_mutable:
        return False
    if torch.Tag.nondeterministic_seeded not in overload.tags:
        return True
    given = arguments_of(node)
    return any(given.get(name) is False for name in ("train", "training"))


def _without_repeats(node: Node, value: torch.Tensor) -> torch.Tensor:
    """Return the value with one element along each axis on which it repeats, where all readers broadcast that axis."""
    smallest = value
    if value.numel() > SMALL:
        for axis in range(value.dim()):
            first = smallest.narrow(axis, 0, 1)
            if smallest.shape[axis] > 1 and bool((smallest == first).all()):
                smallest = first
    if smallest is value or not all(broadcasts(user, node, smallest.shape) for user in node.users):
        smallest = value
    return smallest.clone(memory_format=torch.contiguous_format)
