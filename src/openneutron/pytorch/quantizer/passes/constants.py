# SPDX-License-Identifier: BSD-3-Clause
"""Compute values that depend only on constants, and turn numbers in arithmetic into constant tensors, which can be quantized.

Examples of such values are weights computed from other weights, ranges, and constant masks.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeAlias

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.fx.passes.infra.pass_base import PassResult
from torch.utils._pytree import tree_leaves

from openneutron.pytorch.graph.program import arguments_of, overload_of
from openneutron.pytorch.graph.rewriting import NodePass, add_constant, constant_of, finished
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
    """Replace the results of nodes that depend only on constants by constants, where any other node reads them.

    A value is still computed when the model runs if it has more than ``MOST_ELEMENTS`` elements and also more than
    all constants that it depends on. If all indices of an axis have the same elements, a value with more than
    ``SMALL`` elements keeps one index of that axis, provided that only arithmetic that broadcasts reads the value. A
    tensor without elements counts as a constant, whatever it depends on.

    The CPU needs this pass: ExecuTorch has no kernel for many operators that are lookup tables on the NPU, and some
    of its kernels end the process for a tensor without elements.
    """

    def __call__(self, module: GraphModule) -> PassResult:
        known: dict[Node, Value] = {}
        sizes: dict[Node, Mapping[str, int]] = {}
        for node in module.graph.nodes:
            value = constant_of(module, node) if node.op == "get_attr" else _without_elements(node)
            if (
                value is None
                and node.op == "call_function"
                and (node.target in _FILLED_ALIKE or known.keys() >= set(node.all_input_nodes))
            ):
                value = _value_of(node, known)
            if value is None:
                continue
            known[node] = value
            sizes[node] = (
                {str(node.target): value.numel()} if isinstance(value, torch.Tensor) and node.op == "get_attr" else {}
            )
            for source in node.all_input_nodes:
                sizes[node] = {**sizes[node], **sizes.get(source, {})}
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


def _without_elements(node: Node) -> torch.Tensor | None:
    """Return the value of a node whose result has no elements. Return None for any other node, and for an operator
    that writes to a tensor."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or any(not isinstance(extent, int) for extent in value.shape):
        return None
    if 0 not in value.shape or ((overload := overload_of(node)) is not None and overload._schema.is_mutable):
        return None
    return torch.empty(tuple(value.shape), dtype=value.dtype)


def _value_of(node: Node, known: Mapping[Node, Value]) -> Value | None:
    """Return the result of a call whose tensors are all in ``known``. A call such as ``ones_like`` needs only the
    shape of its tensor.

    Return None if the result depends on more than the arguments, has no fixed shape, has more than ``LARGEST``
    elements, or has NaN because an argument has no elements.
    """
    if node.target in _FILLED_ALIKE:
        return _filled_alike(node)
    args, kwargs = (map_arg(item, known.__getitem__) for item in (node.args, node.kwargs))
    if node.target is operator.getitem:
        return args[0][args[1]]
    told = tree_leaves(node.meta.get("val"))
    if not isinstance(node.target, torch._ops.OpOverload) or not _is_function(node, node.target) or not told:
        return None
    if not all(isinstance(item, torch.Tensor) for item in told):
        return None
    if any(not isinstance(extent, int) for item in told for extent in item.shape):
        return None
    if max(item.numel() for item in told) > LARGEST:
        return None
    with torch.no_grad():
        value = node.target(*args, **kwargs)
    if isinstance(value, torch.Tensor):
        # A mean of no elements is NaN, which no weight of the model may be.
        is_undefined = 0 in (item.numel() for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor))
        return None if is_undefined and bool(value.isnan().any()) else value.detach()
    return tuple(item.detach() for item in value) if isinstance(value, (list, tuple)) else None


def _filled_alike(node: Node) -> torch.Tensor | None:
    """Return the result of a call of ``_FILLED_ALIKE``, such as ``ones_like``, which fills the shape of a tensor with
    a number.

    Return None if the shape is not fixed, if the result has more than ``MOST_ELEMENTS`` elements, or if the number is
    computed.
    """
    value, given = node.meta.get("val"), arguments_of(node)
    if not isinstance(value, torch.Tensor) or any(not isinstance(extent, int) for extent in value.shape):
        return None
    number = given.get("fill_value", _FILLED_ALIKE[node.target])
    if value.numel() > MOST_ELEMENTS or not isinstance(number, (int, float)):
        return None
    return torch.full(tuple(value.shape), number, dtype=value.dtype)


def _is_function(node: Node, overload: torch._ops.OpOverload) -> bool:
    """Return whether the result of a call depends only on its arguments. For dropout this holds outside of training."""
    if overload._schema.is_mutable:
        return False
    if torch.Tag.nondeterministic_seeded not in overload.tags:
        return True
    given = arguments_of(node)
    return any(given.get(name) is False for name in ("train", "training"))


def _without_repeats(node: Node, value: torch.Tensor) -> torch.Tensor:
    """Return a copy of the value with extent 1 along each axis on which it repeats, since the readers broadcast.

    Return a copy of the whole value if it has at most ``SMALL`` elements, or if one of the readers does not broadcast
    all of these axes.
    """
    smallest = value
    if value.numel() > SMALL:
        for axis in range(value.dim()):
            first = smallest.narrow(axis, 0, 1)
            if smallest.shape[axis] > 1 and bool((smallest == first).all()):
                smallest = first
    if smallest is value or not all(broadcasts(user, node, smallest.shape) for user in node.users):
        smallest = value
    return smallest.clone(memory_format=torch.contiguous_format)


_aten = torch.ops.aten
_FILLED_ALIKE = {_aten.ones_like.default: 1, _aten.zeros_like.default: 0, _aten.full_like.default: None}
"""The number with which an operator such as ``ones_like`` fills the shape of its argument; None if the number is an
argument."""

_ARITHMETIC = (_aten.add.Tensor, _aten.sub.Tensor, _aten.mul.Tensor, _aten.div.Tensor)
_TURNED = (_aten.rsub.Scalar, _aten.rsub.Tensor)
_EXTREMA = {_aten.maximum.default: "min", _aten.minimum.default: "max"}
_SCALAR_FORMS = {
    _aten.add.Scalar: _aten.add.Tensor,
    _aten.sub.Scalar: _aten.sub.Tensor,
    _aten.mul.Scalar: _aten.mul.Tensor,
    _aten.div.Scalar: _aten.div.Tensor,
}

Known = Callable[[object], torch.Tensor | None]
"""A function that returns the tensor of a node if the node is a constant, else None."""


@dataclass(frozen=True, slots=True)
class DropUnitFactors(NodePass):
    """Replace a product with a constant of ones by its other factor, if that has the shape and the type of the
    product. A mask that hides nothing is such a constant."""

    targets = (_aten.mul.Tensor,)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        for data, factor in (node.args[:2], node.args[1::-1]):
            known = constant_of(module, factor)
            if known is None or not isinstance(data, Node) or not bool((known == 1).all()):
                continue
            value, result = data.meta.get("val"), node.meta["val"]
            if isinstance(value, torch.Tensor) and (value.shape, value.dtype) == (result.shape, result.dtype):
                node.replace_all_uses_with(data)
                return True
        return False


@dataclass(frozen=True, slots=True)
class SumsToMeans(NodePass):
    """Rewrite ``sum(x, dims) / n`` as ``mean(x, dims)`` where n is the number of elements of each sum, and nothing
    else reads the sum.

    A mean is rounded to int8 once. A sum and its quotient would each be rounded in a range of their own.
    """

    targets = (_aten.div.Tensor, _aten.div.Scalar)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        total, divisor = node.args[:2]
        if not isinstance(total, Node) or total.target is not _aten.sum.dim_IntList or len(total.users) != 1:
            return False
        if node.kwargs or not _is_float(total):
            return False
        given, held = (
            arguments_of(total),
            divisor if isinstance(divisor, (int, float)) else constant_of(module, divisor),
        )
        count = _summed(given["self"], given["dim"])
        if held is None or count is None or not bool((torch.as_tensor(held) == count).all()):
            return False
        if node.meta["val"].shape != total.meta["val"].shape or given.get("dtype") is not None:
            return False
        node.target, node.args = _aten.mean.dim, (given["self"], given["dim"], given["keepdim"])
        return True


def _summed(source: Node, axes: Sequence[int] | None) -> int | None:
    """Return the number of elements that a sum over ``axes`` adds for each result, or None if no axes are given or
    the shape is not fixed."""
    shape = source.meta["val"].shape
    extents = [shape[axis] for axis in axes or ()]
    return math.prod(extents) if extents and all(isinstance(extent, int) for extent in extents) else None


@dataclass(frozen=True, slots=True)
class ScalarsToTensors(NodePass):
    """Rewrite arithmetic of a float tensor and a number so that the number is a constant tensor c.

    ``x + 2`` becomes ``x + c``, ``x / 2`` becomes ``x * c``, and ``2 - x`` (rsub) becomes ``c - x``. ``x / y``
    becomes ``x * (1 / y)``, unless y is a constant with a zero, and ``x + 3 * y`` (alpha) becomes ``x + y * c``. The
    maximum or minimum of ``x`` and a constant of one element becomes a clamp.

    training: trained parameters do not count as constants, so that training continues to change them.

    A computed ``1 / y`` is quantized like any function of one tensor: its range reaches to its largest value in
    calibration. If y comes near 0, this range is so large that few steps are left for the reciprocals of larger y.
    """

    training: bool = False

    targets = (*_ARITHMETIC, *_TURNED, *_EXTREMA, *_SCALAR_FORMS)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        def known(item: Any) -> torch.Tensor | None:
            held = constant_of(module, item)
            trained = held is not None and self.training and attrgetter(str(item.target))(module).requires_grad
            return None if trained else held

        return _is_float(node) and _rewrite(module, node, node.meta["val"], known)


def _rewrite(module: GraphModule, node: Node, value: torch.Tensor, known: Known) -> bool:
    if node.target in _EXTREMA:
        return _to_clamp(node, known)
    target = _SCALAR_FORMS.get(node.target, node.target)
    if len(node.args) not in (2, 3) or set(node.kwargs) - {"alpha"}:
        return False
    if not all(isinstance(item, (int, float)) or _is_float(item) for item in node.args[:2]):
        return False
    left, right = node.args[:2]
    alpha = node.args[2] if len(node.args) > 2 else node.kwargs.get("alpha", 1)
    if target is _aten.div.Tensor:
        return _to_product(module, node, left, right, known)
    if target in _TURNED:
        target, left, right = _aten.sub.Tensor, right, left
    right = _scaled(module, node, right, alpha, known)
    args = tuple(
        add_constant(module, node, f"{node.name}_constant", torch.tensor(item, dtype=value.dtype))
        if isinstance(item, (int, float))
        else item
        for item in (left, right)
    )
    if (node.target, node.args, node.kwargs) == (target, args, {}):
        return False
    node.target, node.args, node.kwargs = target, args, {}
    return True


def _is_float(item: object) -> bool:
    value = item.meta.get("val") if isinstance(item, Node) else None
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _to_clamp(node: Node, known: Known) -> bool:
    """Replace the maximum or minimum of a tensor and a constant number by a clamp. Return whether the node was one.

    If the number stayed an operand, it would widen the quantization range, which both operands share.
    """
    for bound, data in (node.args, node.args[::-1]):
        number = known(bound)
        if number is None or number.numel() != 1 or not isinstance(data, Node):
            continue
        value, result = data.meta["val"], node.meta["val"]
        if (value.shape, value.dtype) == (result.shape, result.dtype):
            node.kwargs = {_EXTREMA[node.target]: float(number)}
            node.target, node.args = _aten.clamp.default, (data,)
            return True
    return False


def _to_product(module: GraphModule, node: Node, left: object, right: object, known: Known) -> bool:
    divisor = torch.tensor(right) if isinstance(right, (int, float)) else known(right)
    if not isinstance(left, Node) or (divisor is not None and bool((divisor == 0).any())):
        return False
    if divisor is not None:
        dtype = node.meta["val"].dtype
        factor = add_constant(module, node, f"{node.name}_reciprocal", (1.0 / divisor).to(dtype))
    else:
        assert isinstance(right, Node)
        with module.graph.inserting_before(node):
            factor = module.graph.call_function(_aten.reciprocal.default, (right,))
        factor.meta = {**node.meta, "val": right.meta["val"]}
    node.target, node.args = _aten.mul.Tensor, (left, factor)
    return True


def _scaled(module: GraphModule, node: Node, item: object, alpha: object, known: Known) -> object:
    assert isinstance(alpha, (int, float))
    if alpha == 1:
        return item
    if isinstance(item, (int, float)):
        return item * alpha
    assert isinstance(item, Node)
    constant = known(item)
    if constant is not None:
        return add_constant(module, node, f"{node.name}_scaled", constant * alpha)
    factor = add_constant(module, node, f"{node.name}_alpha", torch.tensor(alpha, dtype=item.meta["val"].dtype))
    with module.graph.inserting_before(node):
        product = module.graph.call_function(_aten.mul.Tensor, (item, factor))
    product.meta = {**node.meta, "val": item.meta["val"]}
    return product
