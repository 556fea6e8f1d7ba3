# SPDX-License-Identifier: BSD-3-Clause
"""Sums of integers that follow from booleans, such as positions of the tokens that are no padding, as sums of small floats."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.graph.program import WHOLE_NUMBERS, arguments_of
from openneutron.pytorch.graph.rewriting import add_constant, constant_of, finished
from openneutron.pytorch.quantizer.specs import whole_spec

_aten = torch.ops.aten

Bounds: TypeAlias = tuple[int, int]

_SUMS = (_aten.cumsum.default, _aten.sum.default, _aten.sum.dim_IntList)

_CASTS = (_aten._to_copy.default, _aten.to.dtype)

_VIEWS = frozenset(
    (
        _aten.expand.default,
        _aten.flatten.using_ints,
        _aten.permute.default,
        _aten.reshape.default,
        _aten.slice.Tensor,
        _aten.squeeze.default,
        _aten.squeeze.dim,
        _aten.squeeze.dims,
        _aten.transpose.int,
        _aten.unsqueeze.default,
        _aten.view.default,
    )
)

_COMPARISONS = frozenset(
    getattr(getattr(_aten, name), form)
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
    for form in ("Tensor", "Scalar")
)


@dataclass(frozen=True, slots=True)
class WholeNumbers:
    """Rewrite arithmetic on integers with a sum or a running sum of booleans to the same on floats of scale 1.

    Every number in it has to fit in int8 with that scale. What reads the integers as such, a lookup for one, reads a conversion.
    """

    targets: ClassVar[Collection[object]] = _SUMS

    def __call__(self, module: GraphModule) -> PassResult:
        made = _Made(module)
        changed = False
        for node in reversed(list(module.graph.nodes)):
            if node.users and made.has_sum(node):
                changed |= made.rewrite(node)
        return finished(module, changed)


@dataclass(slots=True)
class _Made:
    """The floats that are there so far, by the integers that they stand for."""

    module: GraphModule
    bounds: dict[Node, Bounds | None] = field(default_factory=dict)
    floats: dict[Node, Node] = field(default_factory=dict)

    def rewrite(self, node: Node) -> bool:
        """Let the readers of integers read the floats in their place; return False where the integers may not fit."""
        users = [user for user in node.users if user not in self.floats]
        if not users or self._bounds(node) is None:
            return False
        number = self._float(node)
        converted: Node | None = None
        for user in users:
            if user.target in _COMPARISONS and self._is_known_beside(user, node):
                user.replace_input_with(node, number)
            elif user.target in _CASTS and user.meta["val"].dtype == torch.float32:
                user.replace_all_uses_with(number)
            else:
                converted = converted or self._integers(node, number)
                user.replace_input_with(node, converted)
        return True

    def has_sum(self, node: Node) -> bool:
        """Return whether a node's integers are computed with a sum in it, back to booleans and constants."""
        if not _is_integer(node) or node.op != "call_function" or self._bounds(node) is None:
            return False
        return node.target in _SUMS or any(map(self.has_sum, node.all_input_nodes))

    def _is_known_beside(self, user: Node, node: Node) -> bool:
        """Return whether a comparison's other operand is a constant."""
        (other,) = [item for item in user.args if item is not node] or [node]
        return not isinstance(other, Node) or constant_of(self.module, other) is not None

    def _bounds(self, node: object) -> Bounds | None:
        """Return the least and the largest value of integers or booleans; None where a number may not fit in int8."""
        if isinstance(node, int):
            return node, node
        if not isinstance(node, Node) or not (_is_integer(node) or _is_boolean(node)):
            return None
        if node not in self.bounds:
            found = self._bounds_of(node)
            self.bounds[node] = found if found is not None and whole_spec(found) is not None else None
        return self.bounds[node]

    def _bounds_of(self, node: Node) -> Bounds | None:
        known = constant_of(self.module, node)
        if known is not None:
            return (int(known.min()), int(known.max())) if known.numel() else None
        if _is_boolean(node):
            return 0, 1
        if node.op != "call_function" or not isinstance(node.meta.get("val"), Tensor):
            return None
        if node.target in _VIEWS or node.target in _CASTS:
            return self._bounds(node.args[0])
        if node.target in _SUMS:
            return self._bounds_of_sum(node)
        if node.target in (_aten.add.Tensor, _aten.sub.Tensor, _aten.mul.Tensor) and not node.kwargs:
            first, second = (self._bounds(item) for item in node.args[:2])
            if first is None or second is None or len(node.args) != 2:
                return None
            if node.target is _aten.add.Tensor:
                return first[0] + second[0], first[1] + second[1]
            if node.target is _aten.sub.Tensor:
                return first[0] - second[1], first[1] - second[0]
            products = [a * b for a in first for b in second]
            return min(products), max(products)
        return None

    def _bounds_of_sum(self, node: Node) -> Bounds | None:
        source = node.args[0]
        here = self._bounds(source)
        if here is None or not isinstance(source, Node):
            return None
        shape, given = source.meta["val"].shape, arguments_of(node)
        dim = given.get("dim")
        axes: Sequence[int] = (dim,) if isinstance(dim, int) else dim or range(len(shape))
        count = math.prod(shape[axis] for axis in axes) if shape else 1
        if node.target is _aten.cumsum.default:
            return min(here[0], count * here[0]), max(here[1], count * here[1])
        return count * here[0], count * here[1]

    def _float(self, node: Node) -> Node:
        """Return the floats of integers or booleans, in front of the readers of these."""
        if node in self.floats:
            return self.floats[node]
        known = constant_of(self.module, node)
        if known is not None:
            made = add_constant(self.module, node.next, f"{node.name}_number", known.to(torch.float32))
            made.meta["val"] = node.meta["val"].fake_mode.from_tensor(known.to(torch.float32), static_shapes=True)
        elif _is_boolean(node):
            made = self._call(node, _aten._to_copy.default, node, dtype=torch.float32)
        elif node.target in _CASTS:
            source = node.args[0]
            assert isinstance(source, Node)
            made = self._float(source)
        else:
            arguments = [self._float(item) if isinstance(item, Node) else item for item in node.args]
            assert isinstance(node.target, torch._ops.OpOverload)
            kept = {key: value for key, value in node.kwargs.items() if key != "dtype"}
            made = self._call(node, node.target, *arguments, **kept)
            if node.target not in _VIEWS:
                made.meta["custom"] = {**node.meta.get("custom", {}), WHOLE_NUMBERS: self._bounds(node)}
        self.floats[node] = made
        return made

    def _integers(self, node: Node, number: Node) -> Node:
        made = self._call(number, _aten._to_copy.default, number, dtype=node.meta["val"].dtype)
        made.meta["custom"] = dict(node.meta.get("custom", {}))
        return made

    def _call(self, behind: Node, target: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Node:
        before = behind.next
        while before.op == "placeholder":
            before = before.next
        with self.module.graph.inserting_before(before):
            made = self.module.graph.call_function(target, args, kwargs)
        values = map_arg(made.args, lambda source: source.meta["val"])
        with torch.no_grad(), behind.meta["val"].fake_mode:
            made.meta = {**behind.meta, "val": target(*values, **kwargs)}
        return made


def _is_integer(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.dtype in (torch.int32, torch.int64)


def _is_boolean(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.dtype == torch.bool
