# SPDX-License-Identifier: BSD-3-Clause
"""Rewrite attention that a model computes with single operators, and masks that exclude scores from a softmax.

Models write masks as sums with large negative numbers, as fills, or as selections. Each becomes one sum with ``where(hidden, MASKED, 0)``,
where ``hidden`` is boolean. The product of a softmax with the values becomes the operators of the decomposition of
``scaled_dot_product_attention``.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._subclasses import FakeTensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.graph.program import SAME, WRITTEN_AS, Change, dtype_of, is_move, is_pointwise, overload_of
from openneutron.pytorch.graph.rewriting import (
    NodePass,
    Pass,
    add_call,
    add_constant,
    behind,
    constant_of,
    finished,
    number_of,
    only_user,
    retrace,
)
from openneutron.pytorch.operators.annotations import MASKED
from openneutron.pytorch.operators.matmul import MOST_KEYS_OF_SOFTMAX, attended
from openneutron.pytorch.quantizer.passes.linear import factor_of
from openneutron.pytorch.quantizer.specs import row_dimension

_aten = torch.ops.aten


_PRODUCTS = (_aten.matmul.default, _aten.bmm.default)
_SOFTMAX = (_aten.softmax.int, _aten._softmax.default)
_MASKS = (_aten.add.Tensor, _aten.masked_fill.Scalar, _aten.where.self)
_FACTORS = (_aten.mul.Tensor, _aten.mul.Scalar, _aten.div.Tensor, _aten.div.Scalar)

_BUILT_IN = "aten.scaled_dot_product_attention.default"

MOST_UNEVEN = 2
"""The limit on the ratio of the numbers of visible keys in two rows, for attention whose division by the row's sum comes last.

The reciprocals of the sums of all rows share one scale (``MOST_KEYS_OF_SOFTMAX``).
"""


@dataclass(frozen=True, slots=True)
class WrittenAttention(NodePass):
    """Rewrite attention that a model writes as ``softmax(scores + mask) @ values`` to the form that
    ``scaled_dot_product_attention`` is decomposed to.

    The scaling factor then multiplies the queries, not the scores. With more than ``MOST_KEYS_OF_SOFTMAX`` keys, the
    softmax's division by the sum of each row comes after the product with the values, unless a constant mask gives
    rows very different numbers of visible keys. Nothing changes if another node reads the softmax's result.
    """

    targets = _PRODUCTS

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        chain = _to_softmax(node)
        if chain is None or any(map(self.is_kept, chain)):
            return False
        moved = _move_factors(module, chain[-1])
        return _rewrite(module, node, chain) or moved

    def is_kept(self, node: Node) -> bool:
        return node.meta.get("custom", {}).get(WRITTEN_AS) == _BUILT_IN or Pass.is_kept(self, node)


def _to_softmax(product: Node) -> list[Node] | None:
    """Return the chain of nodes from the first operand of a matrix product back to the softmax that it comes from,
    with the softmax last.

    The softmax must be over the axis that the product sums over. Return None if there is no such softmax, or if a
    node of the chain has another reader.
    """
    here, chain = product.args[0], []
    keys = product.meta["val"].dim() and product.args[1].meta["val"].shape[-2:][0]
    while isinstance(here, Node) and here.op == "call_function" and len(here.users) == 1:
        value = here.meta.get("val")
        if not isinstance(value, FakeTensor) or value.dtype != torch.float32 or value.shape[-1:] != (keys,):
            return None
        chain.append(here)
        if here.target in _SOFTMAX:
            return chain if here.args[1] in (-1, value.dim() - 1) and isinstance(here.args[0], Node) else None
        if not _keeps_rows(here):
            return None
        here = here.args[0]
    return None


def _keeps_rows(node: Node) -> bool:
    if node.target is _aten.dropout.default:
        return not node.args[2]
    if node.target is _aten.permute.default:
        order = node.args[1]
        assert isinstance(order, (list, tuple))
        return order[-1] in (-1, len(order) - 1)
    return node.target is _aten.expand.default or is_move(node, Change.VIEW)


def _rewrite(module: GraphModule, product: Node, chain: list[Node]) -> bool:
    *views, softmax = chain
    scores, values = softmax.args[0], product.args[1]
    assert isinstance(scores, Node) and isinstance(values, Node)
    if not all(isinstance(item.meta.get("val"), FakeTensor) for item in (scores, values)):
        return False
    if softmax.meta["val"].shape[-1] <= MOST_KEYS_OF_SOFTMAX or _is_uneven(module, scores):
        return False

    def function(scores: Tensor, values: Tensor) -> Tensor:
        for view in reversed(views):
            if view.target is not _aten.dropout.default:
                assert isinstance(view.target, torch._ops.OpOverload)
                scores = view.target(scores, *view.args[1:], **view.kwargs)
        return attended(scores, values)

    return retrace(module, product, function, [scores, values])


def _move_factors(module: GraphModule, softmax: Node) -> bool:
    """Move the scaling factor of the scores before a softmax to the queries: ``(q @ k) * s`` becomes ``(q * s) @ k``.
    A quotient by a number counts as a product.

    Return whether there was such a factor.
    """
    waiting, changed = [softmax.args[0]], False
    while waiting:
        here = waiting.pop()
        if not isinstance(here, Node):
            continue
        if here.target in _MASKS:
            waiting += [source for source in here.args if isinstance(source, Node)]
            continue
        found = _factor_of(module, here)
        product = found and _product_behind(found[0])
        if found and product:
            scaled = add_call(module, product, _aten.mul.Tensor, product.args[0], found[1])
            product.replace_input_with(product.args[0], scaled)
            here.replace_all_uses_with(found[0])
            changed = True
    return changed


def _factor_of(module: GraphModule, node: Node) -> tuple[Node, float] | None:
    """Return the operand and the factor of a product with a number or a quotient by a number, or None for other calls."""
    if node.target not in _FACTORS or len(node.args) != 2 or node.kwargs:
        return None
    data, number = node.args
    if node.target is _aten.mul.Tensor and constant_of(module, data) is not None:
        data, number = number, data
    factor = number_of(module, number)
    if not isinstance(data, Node) or not factor:
        return None
    if data.meta["val"].shape != node.meta["val"].shape or data.meta["val"].dtype != node.meta["val"].dtype:
        return None
    return data, factor if node.target in (_aten.mul.Tensor, _aten.mul.Scalar) else 1 / factor


def _product_behind(node: object) -> Node | None:
    """Return the matrix product that ``node`` is, or whose elements ``node`` moves, perhaps through further moves.

    Return None if there is none, or if the product or one of the moves does not have exactly one reader.
    """
    while isinstance(node, Node) and len(node.users) == 1:
        if node.target in _PRODUCTS:
            return node
        if not is_move(node):
            return None
        node = node.args[0]
    return None


def _is_uneven(module: GraphModule, scores: Node) -> bool:
    """Return whether a constant mask gives rows very different numbers of visible keys, as a causal mask does.

    The mask must have the form that ``BooleanMasks`` writes.
    """
    if scores.target is not _aten.add.Tensor:
        return False
    waiting, shape = [scores.args[1]], scores.meta["val"].shape
    while waiting:
        here = waiting.pop()
        known = constant_of(module, here)
        if known is not None and known.numel() > 1:
            hidden = known if known.dtype == torch.bool else known <= MASKED
            seen = (~hidden).expand(shape).sum(-1)
            if bool(seen.max() > MOST_UNEVEN * seen.min().clamp(min=1)):
                return True
        elif isinstance(here, Node) and here.target in (_aten.where.self, _aten.logical_or.default):
            waiting += here.args[: 1 if here.target is _aten.where.self else None]
    return False


_CLAMPS = (_aten.clamp.default, _aten.clamp_min.default)

MOST_BOOLEANS = 3
"""The limit on the number of boolean inputs of a mask. The mask is evaluated for all combinations of their values."""

MOST_NODES = 64
"""The limit on the number of operators from the boolean inputs to a mask."""

TRUE_FROM = 0.5
"""The value from which on an element of a float mask of zeros and ones counts as 1, so that its rounding to int8 does not matter."""

Views: TypeAlias = tuple["Node | tuple[int, ...]", ...]
"""Operators that only move elements, in execution order. Each item is a call that moves the elements of its first argument, or a shape to
which the elements are expanded."""

Variable: TypeAlias = tuple[Node, Views]
"""An input of a mask's expression: a node with booleans or the numbers 0 and 1, and the operators that move its elements."""


@dataclass(frozen=True, slots=True)
class BooleanMasks(Pass):
    """Replace all masks of a softmax's input by one: the scores plus ``where(hidden, MASKED, 0)`` with a boolean
    ``hidden``.

    A mask is a term that is 0 for visible scores and at most ``MASKED`` for excluded ones. It is computed from
    booleans, from integer or float inputs that are 0 or 1, and from constants. The model may add it, subtract it,
    fill it in or select it. Other terms of the scores stay. Layers with the same mask share its boolean nodes. A
    float input of the model that is added to the scores unchanged is clamped to at least ``MASKED``.

    ``keep``: a function that returns True for calls that must not change.
    """

    targets = (_aten.softmax.int, _aten._softmax.default, _aten.amax.default)

    def __call__(self, module: GraphModule) -> PassResult:
        made = _Made(module)
        changed = False
        for node in list(module.graph.nodes):
            if node.op == "call_function" and self._is_masked(node):
                changed |= made.rewrite(node)
        return finished(module, changed)

    def _is_masked(self, node: Node) -> bool:
        if self.is_kept(node) or any(map(self.is_kept, node.users)):
            return False
        return dtype_of(node) == torch.float32 and not _is_difference(node) and _rows_behind(node)


def _rows_behind(node: Node) -> bool:
    """Return whether a softmax over the last dimension reads a node, directly or through views that keep the last dimension."""
    rank = node.meta["val"].dim()
    if rank and row_dimension(node) == rank - 1:
        return True
    if len(node.users) != 1 or not rank:
        return False
    (user,) = node.users
    if not is_move(user, Change.VIEW):
        return False
    return bool(user.meta["val"].shape[-1:] == node.meta["val"].shape[-1:]) and _rows_behind(user)


def _is_difference(node: Node) -> bool:
    """Return whether a node computes ``scores - amax(scores)`` for each row."""
    second = node.args[1] if node.target is _aten.sub.Tensor else None
    return isinstance(second, Node) and second.target is _aten.amax.default


@dataclass(slots=True)
class _Made:
    """The nodes that ``BooleanMasks`` has added so far, by their content, so that layers share equal ones."""

    module: GraphModule
    nodes: dict[Any, Node] = field(default_factory=dict)
    hidden: list[Node | Tensor] = field(default_factory=list)
    """The booleans that are True where a score is excluded: nodes, or constant tensors."""

    def rewrite(self, scores: Node) -> bool:
        """Rewrite the masks of scores and return True. Return False if the scores have no masks."""
        self.hidden = []
        rest = self._without(scores, 1.0, scores)
        if rest is scores or rest is None:
            return False
        if self.hidden:
            rest = self._call(scores, scores, _aten.add.Tensor, rest, self._added(scores))
        if rest.meta["val"].shape != scores.meta["val"].shape:
            rest = self._call(scores, scores, _aten.expand.default, rest, list(scores.meta["val"].shape))
        scores.replace_all_uses_with(rest)
        return True

    # Taking masks out

    def _without(self, node: Node, factor: float, scores: Node) -> Node | None:
        """Return a node that computes ``node`` without its masks, and append the booleans of the masks to
        ``self.hidden``.

        Return ``node`` itself if it has no masks, and None if the whole node is a mask. ``factor`` is the number by
        which the node's values are multiplied before they are part of the scores.
        """
        if node is not scores and self._is_hiding(node, factor, scores):
            return None
        if node is not scores and (len(node.users) != 1 or node.op != "call_function"):
            return self._ended(node, factor)
        first, *others = (item for item in node.args) if node.args else (None,)
        if node.target in (_aten.add.Tensor, _aten.sub.Tensor) and not node.kwargs and len(node.args) == 2:
            return self._without_in_sum(node, factor, scores)
        multiplied = factor_of(self.module, node)
        if multiplied is not None and multiplied > 0 and isinstance(first, Node) and dtype_of(first) == torch.float32:
            rest = self._without(first, factor * multiplied, scores)
            changed = rest is not None and rest is not first
            return self._call(scores, node, node.target, rest, *others) if changed else (rest and node)
        if node.target in _CLAMPS and isinstance(first, Node) and _least(node) <= MASKED:
            rest = self._without(first, factor, scores)
            return node if rest is first else rest
        filled = self._filled(node, factor)
        if filled is not None:
            data, condition, fills = filled
            self.hidden.append(self._truth(condition, fills, scores))
            return self._without(data, factor, scores)
        return node if node is scores else self._ended(node, factor)

    def _without_in_sum(self, node: Node, factor: float, scores: Node) -> Node | None:
        first, second = node.args
        sign = -1.0 if node.target is _aten.sub.Tensor else 1.0
        if not isinstance(first, Node) or not isinstance(second, Node):
            return node
        if _input_behind(first):
            return self._bounded(node, factor * sign) if _is_added(node) else node  # the input may be the scores
        left = self._without(first, factor, scores)
        right = self._without(second, factor * sign, scores)
        if left is first and right is second:
            return node
        if right is None:
            return left
        if left is None:
            return right if sign > 0 else self._call(scores, node, _aten.neg.default, right)
        return self._call(scores, node, node.target, left, right)

    def _bounded(self, mask: Node, factor: float) -> Node:
        """Return the sum of a float input and a constant mask, with the input, the constant and the sum clamped to at
        least ``MASKED``.

        Return ``mask``, the sum as it is, if the second operand is no constant, if the constant excludes nothing, or
        if ``factor`` is not 1.
        """
        source, constant = mask.args
        known = constant_of(self.module, constant)
        if factor != 1 or known is None or not bool((known <= MASKED).any()) or not isinstance(source, Node):
            return mask
        held = add_constant(self.module, mask, f"{mask.name}_mask", known.clamp(min=MASKED), mask)
        total = self._call(mask, mask, _aten.add.Tensor, self._ended(source, factor), held)
        return self._call(mask, mask, _aten.clamp.default, total, MASKED)

    def _ended(self, node: Node, factor: float) -> Node:
        """Return the node clamped to at least ``MASKED`` if it is a float input of the model that is added to the scores, else the node
        itself."""
        source = _input_behind(node)
        if source is None or factor != 1:
            return node
        key = ("ended", source)
        if key not in self.nodes:
            self.nodes[key] = self._call(behind(source), node, _aten.clamp.default, source, MASKED)
        return self._moved(self.nodes[key], _views_between(source, node), node)

    def _filled(self, node: Node, factor: float) -> tuple[Node, Node, bool] | None:
        """Return the parts of a masked fill or a selection that excludes scores: the scores before it, its condition,
        and whether scores are excluded where the condition is True (or else where it is False).

        Return None for other nodes.
        """
        if node.target is _aten.masked_fill.Scalar:
            data, condition, number = node.args
            fills = True
        elif node.target is _aten.where.self:
            condition, *either = node.args
            fills = constant_of(self.module, either[0]) is not None
            filler, data = either if fills else either[::-1]
            known = constant_of(self.module, filler)
            uniform = known is not None and known.numel() and bool((known == known.reshape(-1)[0]).all())
            number = float(known.reshape(-1)[0]) if uniform and known is not None else 0.0
        else:
            return None
        if not isinstance(data, Node) or not isinstance(condition, Node) or not isinstance(number, (int, float)):
            return None
        return (data, condition, fills) if number * factor <= MASKED else None

    # Masks as functions of booleans

    def _is_hiding(self, node: Node, factor: float, scores: Node) -> bool:
        """Return whether a term of the scores, computed by ``node``, is nothing but a mask: each value is 0, or
        excludes its score because value * ``factor`` is at most ``MASKED``, and at least one score is excluded. If
        so, append booleans to ``hidden`` that are True where scores are excluded."""
        known = constant_of(self.module, node)
        if known is not None:
            masks, rest = known.double() * factor <= MASKED, known
            if not bool(masks.any()) or bool(rest[~masks].any()):
                return False
            self.hidden.append(masks)
            return True
        expression = _expression(self.module, node)
        if expression is None:
            return False
        combinations = list(itertools.product((False, True), repeat=len(expression.variables)))
        masks_of = []
        for values in combinations:
            result = expression.evaluated(dict(zip(expression.variables, map(float, values), strict=True)), self.module)
            masks = result.double() * factor <= MASKED
            if bool(torch.where(masks, 0.0, result).any()):
                return False
            masks_of.append(masks)
        if not any(bool(masks.any()) for masks in masks_of):
            return False
        if any(
            variable[0].op == "placeholder" and dtype_of(variable[0]) == torch.float32
            for variable in expression.variables
        ):
            # A logarithm hides at 0 too, but half of it does not: only steps are masks.
            halves = expression.evaluated(dict.fromkeys(expression.variables, TRUE_FROM), self.module)
            if not bool((halves.double() * factor <= MASKED).all()):
                return False
        self.hidden.append(self._of_combinations(expression.variables, combinations, masks_of, scores))
        return True

    def _of_combinations(
        self,
        variables: Sequence[Variable],
        combinations: Sequence[tuple[bool, ...]],
        masks_of: Sequence[Tensor],
        scores: Node,
    ) -> Node:
        """Return a boolean node that is True where scores are excluded.

        ``combinations`` are values of the boolean variables. For each of them, ``masks_of`` has a boolean tensor that
        is True where scores are excluded.
        """
        uniform = all(masks.numel() == 1 for masks in masks_of)
        count = sum(bool(masks.any()) for masks in masks_of)
        negated = uniform and 2 * count > len(masks_of)
        terms: list[Node] = []
        for values, masks in zip(combinations, masks_of, strict=True):
            masks = ~masks if negated else masks
            if not bool(masks.any()):
                continue
            factors = [
                self._truth(self._literal(variable), value, scores)
                for variable, value in zip(variables, values, strict=True)
            ]
            term = self._joined(_aten.logical_and.default, factors, scores)
            if not bool(masks.all()):
                term = self._joined(_aten.logical_and.default, [term, masks], scores)
            terms.append(term)
        found = self._joined(_aten.logical_or.default, terms, scores)
        return self._truth(found, False, scores) if negated else found

    def _literal(self, variable: Variable) -> Node:
        """Return a variable as a boolean node after its moves, as ``_moved`` returns it."""
        root, views = variable
        dtype, key = root.meta["val"].dtype, ("boolean", root)
        if dtype == torch.bool:
            self.nodes[key] = root
        elif key not in self.nodes:
            before = behind(root)
            if dtype.is_floating_point:
                self.nodes[key] = self._call(before, before, _aten.gt.Scalar, root, TRUE_FROM)
            else:
                self.nodes[key] = self._call(before, before, _aten.ne.Scalar, root, 0)
        return self._moved(self.nodes[key], views, root)

    def _moved(self, node: Node, views: Views, origin: Node) -> Node:
        """Return a node with the elements of ``node`` after the moves ``views``. If these together only change the
        shape and repeat elements, it is a reshape, and its readers broadcast the repeated elements."""
        shape = node.meta["val"].shape
        places = torch.arange(shape.numel()).reshape(shape)
        for view in views:
            places = _seen(places, view, self.module)
        for axis in range(places.dim()):
            first = places.narrow(axis, 0, 1)
            places = first if bool((places == first).all()) else places
        if places.numel() == shape.numel() and bool((places.flatten() == torch.arange(shape.numel())).all()):
            if places.shape == shape:
                return node
            return self._shared(origin, _aten.reshape.default, node, list(places.shape))
        for view in views:
            target, arguments = (
                (_aten.expand.default, (view,)) if isinstance(view, tuple) else (view.target, view.args[1:])
            )
            node = self._shared(origin, target, node, *arguments)
        return node

    def _truth(self, condition: Node, value: bool, origin: Node) -> Node:
        """Return the condition if ``value`` is True, else its logical negation."""
        if value:
            return condition
        if condition.target is _aten.logical_not.default or condition.target is _aten.bitwise_not.default:
            inner = condition.args[0]
            assert isinstance(inner, Node)
            return inner
        return self._shared(origin, _aten.logical_not.default, condition)

    def _joined(self, target: torch._ops.OpOverload, items: Sequence[Node | Tensor], origin: Node) -> Node:
        nodes = [item for item in items if isinstance(item, Node)]
        constants = [item for item in items if isinstance(item, Tensor)]
        first, *others = nodes
        for other in others:
            first = first if other is first else self._shared(origin, target, *sorted((first, other)))
        if constants:
            value = constants[0]
            for constant in constants[1:]:
                value = value | constant if target is _aten.logical_or.default else value & constant
            key = (target, first, tuple(value.shape), value.numpy().tobytes())
            if key not in self.nodes:
                before = behind(first)
                held = add_constant(self.module, before, f"{first.name}_hidden", value, first)
                self.nodes[key] = self._call(before, origin, target, first, held)
            first = self.nodes[key]
        return first

    def _added(self, scores: Node) -> Node:
        """Return the term to add to the scores: ``MASKED`` where one of the booleans in ``hidden`` is True, 0 elsewhere."""
        if all(isinstance(item, Tensor) for item in self.hidden):
            value = torch.zeros((), dtype=torch.bool)
            for item in self.hidden:
                value = value | item
            return add_constant(self.module, scores, f"{scores.name}_mask", torch.where(value, MASKED, 0.0), scores)
        hidden = self._joined(_aten.logical_or.default, self.hidden, scores)
        key = ("added", hidden)
        if key not in self.nodes:
            before, numbers = behind(hidden), (MASKED, 0.0)
            condition: Any = hidden
            if hidden.target is _aten.logical_not.default:
                condition, numbers = hidden.args[0], (0.0, MASKED)
            held = [
                add_constant(self.module, before, f"{hidden.name}_number", torch.tensor(n), hidden) for n in numbers
            ]
            self.nodes[key] = self._call(before, scores, _aten.where.self, condition, *held)
        return self.nodes[key]

    # Adding nodes

    def _shared(self, origin: Node, target: torch._ops.OpOverload, *args: Any) -> Node:
        """Return an equal call that an earlier layer made, or a new call after its operands."""
        key = (target, tuple(repr(item) for item in args))
        if key not in self.nodes:
            sources = [item for item in args if isinstance(item, Node)]
            self.nodes[key] = self._call(behind(max(sources)), origin, target, *args)
        return self.nodes[key]

    def _call(self, before: Node, origin: Node, target: Any, *args: Any) -> Node:
        return add_call(self.module, before, target, *args, origin=origin)


def _input_behind(node: Node) -> Node | None:
    """Return the model's float input whose elements a node moves; None if there is none."""
    while _moves_elements(node) and len(node.all_input_nodes) == 1:
        node = node.args[0]
    return node if node.op == "placeholder" and dtype_of(node) == torch.float32 else None


def _is_added(node: Node) -> bool:
    """Return whether a node's only reader is a sum whose second operand is the node, as for a mask in ``scores +
    mask``. A clamp may be between the node and the sum."""
    reader = only_user(node)
    if reader is not None and reader.target in _CLAMPS:
        node, reader = reader, only_user(reader)
    return reader is not None and reader.target is _aten.add.Tensor and reader.args[1] is node


def _least(node: Node) -> float:
    """Return the lower bound of a clamp without an upper bound, or infinity for any other clamp."""
    bounds = [*node.args[1:], *node.kwargs.values()]
    low = node.kwargs.get("min", node.args[1] if len(node.args) > 1 else None)
    return float(low) if len(bounds) == 1 and isinstance(low, (int, float)) else float("inf")


def _views_between(source: Node, node: Node) -> Views:
    views: list[Node] = []
    while node is not source:
        views.append(node)
        inner = node.args[0]
        assert isinstance(inner, Node)
        node = inner
    return tuple(reversed(views))


def _moves_elements(node: Node) -> bool:
    return is_move(node) and not is_move(node, Change.SAME)


def _is_view(module: GraphModule, node: Node) -> bool:
    """Return whether a node only moves the elements of its first argument, and only constants determine how."""
    return _moves_elements(node) and all(constant_of(module, item) is not None for item in node.all_input_nodes[1:])


def _seen(value: Tensor, view: Node | tuple[int, ...], module: GraphModule) -> Tensor:
    """Return a tensor after one move."""
    if isinstance(view, tuple):
        return value.expand(view)
    assert isinstance(view.target, torch._ops.OpOverload)
    arguments = map_arg(view.args[1:], lambda item: constant_of(module, item))
    moved: Tensor = view.target(value, *arguments)
    return moved


@dataclass(frozen=True, slots=True)
class _Expression:
    """A pointwise function of variables and constants. Between its operators, elements may move."""

    end: Node
    variables: tuple[Variable, ...]

    def evaluated(self, values: Mapping[Variable, float], module: GraphModule) -> Tensor:
        """Return the result of the function if all elements of a variable have the number in ``values``. If all
        elements of the result are equal, it has no axes."""
        done: dict[Variable, Tensor] = {}

        def of(node: Node, views: Views) -> Tensor:
            key = (node, views)
            if key not in done:
                done[key] = made(node, views)
            return done[key]

        def made(node: Node, views: Views) -> Tensor:
            known = constant_of(module, node)
            if known is not None:
                return _value_seen(known, views, module)
            if (node, views) in values:
                return torch.tensor(values[node, views]).to(node.meta["val"].dtype)
            if _is_view(module, node):
                return of(*_through(node, views))
            overload = overload_of(node)
            assert overload is not None
            inner = {source: of(source, _aligned(source, node, views)) for source in node.all_input_nodes}
            if overload._schema.name in SAME:
                return inner[node.all_input_nodes[0]]
            if _is_cast(node):
                return inner[node.all_input_nodes[0]].to(node.meta["val"].dtype)
            args, kwargs = (map_arg(item, inner.__getitem__) for item in (node.args, node.kwargs))
            result: Tensor = overload(*args, **kwargs)
            return result

        with torch.no_grad():
            return of(self.end, ())


def _is_cast(node: Node) -> bool:
    return node.target in (_aten._to_copy.default, _aten.to.dtype)


def _through(node: Node, views: Views) -> Variable:
    """Return the first operand of the move ``node``, and the moves that follow it: ``node``, then ``views``."""
    source = node.args[0]
    assert isinstance(source, Node)
    return source, (node, *views)


def _aligned(source: Node, node: Node, views: Views) -> Views:
    """Return the moves that put the elements of an operand of ``node`` where the moves ``views`` put the elements of
    the result.

    These are ``views``, after an expansion to the shape of ``node`` if the operand is broadcast. The expansion is
    left out if ``views`` is empty, because the operator itself broadcasts.
    """
    value, result = source.meta["val"], node.meta["val"]
    if not views or value.shape == result.shape:
        return views
    return (tuple(result.shape), *views)


def _value_seen(value: Tensor, views: Views, module: GraphModule) -> Tensor:
    if value.numel() and bool((value == value.reshape(-1)[0]).all()):
        return value.reshape(-1)[0]
    for view in views:
        value = _seen(value, view, module)
    return value


_LOGICAL = frozenset(
    (
        *(getattr(_aten, f"logical_{name}").default for name in ("and", "or", "xor", "not")),
        *(
            getattr(_aten, form.format(name)).Tensor
            for name in ("and", "or", "xor")
            for form in ("bitwise_{}", "__{}__")
        ),
        _aten.bitwise_not.default,
        _aten._to_copy.default,
        _aten.to.dtype,
        _aten.where.self,
        _aten.alias.default,
        _aten.clone.default,
        _aten.contiguous.default,
    )
)
"""Operators whose boolean result depends only on which operands are 0."""


def _expression(module: GraphModule, end: Node) -> _Expression | None:
    """Return the expression that computes ``end`` as a function of booleans, or None if there is none.

    Its variables are the booleans at the beginning of the expression. If these are more than ``MOST_BOOLEANS``, the
    booleans nearest to ``end`` are the variables instead. Integer or float32 inputs of the model, which are taken to
    be 0 or 1, are variables too. The result is None if the expression begins with anything else that is not constant,
    has an operator that is neither pointwise nor a move, or has more than ``MOST_NODES`` nodes.
    """
    return _expression_of(module, end, True) or _expression_of(module, end, False)


def _expression_of(module: GraphModule, end: Node, through_logic: bool) -> _Expression | None:
    variables: dict[Variable, None] = {}
    waiting: list[Variable] = [(end, ())]
    seen = 0
    while waiting:
        node, views = waiting.pop()
        seen += 1
        value = node.meta.get("val")
        if seen > MOST_NODES or not isinstance(value, Tensor) or len(variables) > MOST_BOOLEANS:
            return None
        if not all(isinstance(extent, int) for extent in value.shape):
            return None
        if constant_of(module, node) is not None:
            continue
        sources = node.all_input_nodes
        if _is_view(module, node):
            waiting.append(_through(node, views))
        elif value.dtype == torch.bool and not (through_logic and sources and node.target in _LOGICAL):
            variables[node, views] = None
        elif is_pointwise(node) and sources:
            waiting += [(source, _aligned(source, node, views)) for source in sources]
        elif node.op == "placeholder" and (value.dtype == torch.float32 or not value.dtype.is_floating_point):
            variables[node, views] = None
        else:
            return None
    return _Expression(end, tuple(variables)) if 0 < len(variables) <= MOST_BOOLEANS else None
