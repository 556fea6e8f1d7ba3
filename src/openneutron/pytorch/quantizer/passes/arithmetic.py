# SPDX-License-Identifier: BSD-3-Clause
"""Rewrite arithmetic to forms that int8 represents well, or that the NPU computes in one call.

Normalizations: transformer language models write RMS norms as ``weight * (x * rsqrt(mean(x ** 2) + eps))``. Adaptive
norms, as in diffusion transformers, compute gain and bias from another input of the model.

Logarithms and roots of sums of two squares, such as the power of a spectrum: squares have twice the dynamic range of
their operands. One scale for all squares leaves no steps for the small ones, and a logarithm or a root makes their
errors visible again. With a = log(x * x) and b = log(y * y), log(x * x + y * y) is the larger of a and b plus log(1 +
exp(-|a - b|)). This takes tables, a maximum, a difference and a sum of values that int8 represents well.

Factors: the squash of a capsule network is ``n / (1 + n) * s / sqrt(n)``, where n is the squared length of each
vector s. The reciprocal of the root is unbounded, and one scale for it leaves no steps for longer vectors. Its
product with the other factor is at most 1/2, and one table computes the product.

Sums of booleans, such as the positions of the tokens that are no padding, become sums of small floats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._subclasses import FakeTensor
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.ops.reductions import MOST_NORMALIZED
from openneutron.pytorch.graph.program import WHOLE_NUMBERS, arguments_of, dtype_of, is_move, is_pointwise
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
    replace,
    retrace,
)
from openneutron.pytorch.quantizer.specs import whole_spec

_aten = torch.ops.aten


Bounds: TypeAlias = tuple[int, int]

_INTEGER_SUMS = (_aten.cumsum.default, _aten.sum.default, _aten.sum.dim_IntList)

_CASTS = (_aten._to_copy.default, _aten.to.dtype)

_COMPARISONS = frozenset(
    getattr(getattr(_aten, name), form)
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
    for form in ("Tensor", "Scalar")
)


@dataclass(frozen=True, slots=True)
class WholeNumbers(Pass):
    """Rewrite integer arithmetic on a sum or cumulative sum of booleans as float arithmetic, which is quantized with
    the scale 1.

    Each tensor's numbers must fit int8 with the scale 1 (``whole_spec``). Numbers from 0 to 255 fit too, with the
    zero point -128. A reader that needs integers, such as an embedding, gets the floats converted back to integers.
    """

    targets = _INTEGER_SUMS

    def __call__(self, module: GraphModule) -> PassResult:
        made = _Made(module)
        changed = False
        for node in reversed(list(module.graph.nodes)):
            if node.users and made.has_sum(node):
                changed |= made.rewrite(node)
        return finished(module, changed)


@dataclass(slots=True)
class _Made:
    """The float nodes that ``WholeNumbers`` has added so far. ``floats`` maps each integer node to its float node."""

    module: GraphModule
    bounds: dict[Node, Bounds | None] = field(default_factory=dict)
    floats: dict[Node, Node] = field(default_factory=dict)

    def rewrite(self, node: Node) -> bool:
        """Make the readers of an integer node read an equal float node instead, and return True. Return False if its
        integers may not fit int8 with the scale 1, or if all readers are integer nodes that have float nodes already.
        """
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
        """Return whether a node computes integers from booleans and constants, with a sum among the operators, and
        int8 with the scale 1 represents all of them (``whole_spec``)."""
        if not _is_integer(node) or node.op != "call_function" or self._bounds(node) is None:
            return False
        return node.target in _INTEGER_SUMS or any(map(self.has_sum, node.all_input_nodes))

    def _is_known_beside(self, user: Node, node: Node) -> bool:
        """Return whether the other operand of the comparison ``user``, beside ``node``, is a constant."""
        (other,) = [item for item in user.args if item is not node] or [node]
        return not isinstance(other, Node) or constant_of(self.module, other) is not None

    def _bounds(self, node: object) -> Bounds | None:
        """Return the smallest and the largest value of integers or booleans. Return None if they are unknown, or if
        int8 does not represent the range with the scale 1 (``whole_spec``)."""
        if isinstance(node, int):
            return node, node
        if not isinstance(node, Node) or dtype_of(node) not in (torch.bool, torch.int32, torch.int64):
            return None
        if node not in self.bounds:
            found = self._bounds_of(node)
            self.bounds[node] = found if found is not None and whole_spec(found) is not None else None
        return self.bounds[node]

    def _bounds_of(self, node: Node) -> Bounds | None:
        known = constant_of(self.module, node)
        if known is not None:
            return (int(known.min()), int(known.max())) if known.numel() else None
        if dtype_of(node) == torch.bool:
            return 0, 1
        if node.op != "call_function" or not isinstance(node.meta.get("val"), Tensor):
            return None
        if _is_moved(node) or node.target in _CASTS:
            return self._bounds(node.args[0])
        if node.target in _INTEGER_SUMS:
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
        """Return the float node that has the values of an integer or boolean node. It is added after that node if it does not exist yet."""
        if node in self.floats:
            return self.floats[node]
        known = constant_of(self.module, node)
        if known is not None:
            made = add_constant(self.module, node.next, f"{node.name}_number", known.to(torch.float32), origin=node)
        elif dtype_of(node) == torch.bool:
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
            if not _is_moved(node):
                made.meta["custom"] = {**node.meta.get("custom", {}), WHOLE_NUMBERS: self._bounds(node)}
        self.floats[node] = made
        return made

    def _integers(self, node: Node, number: Node) -> Node:
        made = self._call(number, _aten._to_copy.default, number, dtype=node.meta["val"].dtype)
        made.meta["custom"] = dict(node.meta.get("custom", {}))
        return made

    def _call(self, source: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
        return add_call(self.module, behind(source), target, *args, origin=source, **kwargs)


def _is_moved(node: Node) -> bool:
    """Return whether a node moves the elements of its only tensor."""
    return is_move(node) and len(node.all_input_nodes) == 1


def _is_integer(node: Node) -> bool:
    return dtype_of(node) in (torch.int32, torch.int64)


_LOGARITHMS = {_aten.log.default: 1.0, _aten.log2.default: 1 / math.log(2), _aten.log10.default: 1 / math.log(10)}
"""The factor of each logarithm relative to the natural one."""

_SUMS = (_aten.add.Tensor, _aten.add.Scalar)
_ENDS = (_aten.clamp.default, _aten.clamp_min.default)

LEAST_POWER = 1e-12
"""The lower bound of a sum of squares to which the model adds no constant. It keeps the logarithm finite."""


@dataclass(frozen=True, slots=True)
class LogarithmsOfPowers(NodePass):
    """Rewrite ``log(x * x + y * y + e)`` and ``sqrt(x * x + y * y)`` so that they are computed from log(x * x) and log(y * y)."""

    targets = (*_LOGARITHMS, _aten.sqrt.default)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        found = _squares_behind(module, node.args[0])
        if found is None:
            return False
        sources, added, least = found
        values = [source.meta.get("val") for source in sources]
        if not all(isinstance(value, FakeTensor) and value.dtype == torch.float32 for value in values):
            return False

        def function(x: Tensor, y: Tensor) -> Tensor:
            half = max(added, LEAST_POWER) / 2
            a, b = (torch.log(item * item + half) for item in (x, y))
            power = torch.maximum(a, b) + torch.log1p(torch.exp(-torch.abs(a - b)))
            if least > 0:
                power = power.clamp(min=math.log(least))
            return torch.exp(power * 0.5) if node.target is _aten.sqrt.default else power * _LOGARITHMS[node.target]

        return retrace(module, node, function, sources)


@dataclass(frozen=True, slots=True)
class SignedSizes(NodePass):
    """Rewrite ``sign(x) * relu(abs(x))``, which PyTorch's power-average pools contain, as x."""

    targets = (_aten.mul.Tensor,)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        for sign, size in (node.args, node.args[::-1]):
            if not isinstance(sign, Node) or not isinstance(size, Node) or sign.target is not _aten.sign.default:
                continue
            inner = size.args[0] if size.target is _aten.relu.default else size
            if isinstance(inner, Node) and inner.target is _aten.abs.default and inner.args == sign.args:
                node.replace_all_uses_with(sign.args[0])
                return True
        return False


def _squares_behind(module: GraphModule, node: object) -> tuple[list[Node], float, float] | None:
    """Return the two operands whose squares a node adds, the constant that it also adds, and the lower bound of the sum.

    Return None for other nodes.
    """
    added, least = 0.0, 0.0
    while isinstance(node, Node) and len(node.users) == 1 and len(node.args) == 2:
        if node.target in _ENDS and not node.kwargs:
            end = node.args[1]
            if least or not isinstance(end, (int, float)):
                return None
            node, least = node.args[0], float(end)
            continue
        if node.target not in _SUMS or node.kwargs:
            return None
        number = number_of(module, node.args[1])
        if number is not None:
            if number < 0 or added:
                return None
            node, added = node.args[0], number
            continue
        sources = [_squared(module, item) for item in node.args]
        known = [source for source in sources if source is not None]
        return (known, added, least) if len(known) == 2 and known[0] is not known[1] else None
    return None


def _squared(module: GraphModule, node: object) -> Node | None:
    """Return x if a node is the square of x and has one reader; None for other nodes."""
    if not isinstance(node, Node) or node.op != "call_function" or len(node.users) != 1:
        return None
    if (
        (node.target is _aten.mul.Tensor and node.args[0] is node.args[1])
        or node.target is _aten.square.default
        or (node.target in (_aten.pow.Tensor_Scalar, _aten.pow.Tensor_Tensor) and number_of(module, node.args[1]) == 2)
    ):
        source = node.args[0]
    else:
        return None
    return source if isinstance(source, Node) else None


@dataclass(frozen=True, slots=True)
class WrittenNorms(NodePass):
    """Rewrite ``x * rsqrt(mean(x ** 2) + epsilon)`` along the last axis as ``rms_norm``. If the product is multiplied
    by a constant weight, ``rms_norm`` takes the weight too.

    This applies only if no other node reads the intermediate values, and if the axis has at most ``MOST_NORMALIZED``
    elements.
    """

    targets = (_aten.rsqrt.default,)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        product = only_user(node)
        if product is None or product.target is not _aten.mul.Tensor:
            return False
        for x in product.args[:2]:
            found = _squares_of(node, x)
            if found is None or not isinstance(x, Node) or x is node:
                continue
            epsilon, between = found
            extent = x.meta["val"].shape[-1]
            if not isinstance(extent, int) or extent > MOST_NORMALIZED or any(map(self.is_kept, (product, *between))):
                return False
            end, weight = _weighted(module, product, extent)
            if weight is not None and self.is_kept(end):
                end, weight = product, None
            return replace(end, add_call(module, end, _aten.rms_norm.default, x, [extent], weight, epsilon))
        return False


def _squares_of(root: Node, x: object) -> tuple[float, list[Node]] | None:
    """Return the epsilon of ``rsqrt(mean(x ** 2) + epsilon)`` and the nodes of this expression from last to first.

    Return None if ``root`` does not compute such an expression.
    """
    added = root.args[0]
    if not isinstance(added, Node) or added.target is not _aten.add.Tensor or added.kwargs or len(added.users) != 1:
        return None
    mean, epsilon = added.args
    if not isinstance(mean, Node) or not isinstance(epsilon, (int, float)):
        return None
    if (
        mean.target is not _aten.mean.dim
        or len(mean.users) != 1
        or mean.kwargs
        or len(mean.args) < 3
        or not mean.args[2]
    ):
        return None
    square, dims = mean.args[:2]
    value = square.meta.get("val") if isinstance(square, Node) else None
    if (
        not isinstance(value, torch.Tensor)
        or value.dtype != torch.float32
        or list(dims) not in ([-1], [value.dim() - 1])
    ):
        return None
    assert isinstance(square, Node)
    if len(square.users) != 1 or not _is_square(square, x):
        return None
    return float(epsilon), [root, added, mean, square]


def _is_square(node: Node, x: object) -> bool:
    if node.target is _aten.mul.Tensor:
        return node.args == (x, x)
    return node.args[0] is x and (
        node.target is _aten.square.default or (node.target is _aten.pow.Tensor_Scalar and node.args[1] == 2)
    )


def _weighted(module: GraphModule, product: Node, extent: int) -> tuple[Node, Node | None]:
    """Return the product of a node with a constant of ``extent`` values, and this constant.

    Return the node itself and None if its reader is no such product.
    """
    user = only_user(product)
    if user is None or user.target is not _aten.mul.Tensor:
        return product, None
    for other in user.args[:2]:
        known = constant_of(module, other)
        if isinstance(other, Node) and known is not None and tuple(known.shape) == (extent,):
            return user, other
    return product, None


@dataclass(frozen=True, slots=True)
class ComputedGains(NodePass):
    """Rewrite a normalization whose gain or bias is computed, or is an input of the model.

    A computed gain becomes a product after the normalization, and the bias becomes a sum after that. A constant gain
    stays in the normalization.
    """

    targets = (
        _aten.layer_norm.default,
        _aten.rms_norm.default,
        _aten.group_norm.default,
        _aten.instance_norm.default,
    )

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        given = arguments_of(node)
        gain, bias = given.get("weight"), given.get("bias")
        computed = [value is not None and constant_of(module, value) is None for value in (gain, bias)]
        if not any(computed):
            return False
        gain_is_computed = computed[0]
        if gain_is_computed:
            given["weight"] = None
        if bias is not None:
            given["bias"] = None  # the sum comes behind the product
        places = [item.name for item in _schema(node).arguments]
        end = add_call(module, node, node.target, *(given[name] for name in places))
        if gain_is_computed:
            end = add_call(module, node, _aten.mul.Tensor, end, _beside(module, node, gain))
        if bias is not None:
            end = add_call(module, node, _aten.add.Tensor, end, _beside(module, node, bias))
        return replace(node, end)


def _schema(node: Node) -> torch.FunctionSchema:
    assert isinstance(node.target, torch._ops.OpOverload)
    return node.target._schema


def _beside(module: GraphModule, norm: Node, values: Node) -> Node:
    """Return a gain or bias in a shape that broadcasts to the normalization's result: one value per channel becomes [channels, 1, ...]."""
    if norm.target in (_aten.layer_norm.default, _aten.rms_norm.default):
        return values
    extents = [values.meta["val"].shape[0], *(1,) * (norm.meta["val"].dim() - 2)]
    return add_call(module, norm, _aten.reshape.default, values, extents)


_MUL = torch.ops.aten.mul.Tensor


@dataclass(frozen=True, slots=True)
class JoinFactors(NodePass):
    """Rewrite ``(f(n) * s) * g(n)`` as ``s * (f(n) * g(n))`` where n has fewer elements than s."""

    targets = (_MUL,)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        for inner, factor in (node.args, node.args[::-1]):
            if not isinstance(inner, Node) or inner.target is not _MUL or len(inner.users) != 1:
                continue
            for first, data in (inner.args, inner.args[::-1]):
                if not self._are_factors(first, factor, data) or self.is_kept(inner):
                    continue
                both = add_call(module, node, _MUL, first, factor)
                return replace(node, add_call(module, node, _MUL, data, both))
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


@dataclass(frozen=True, slots=True)
class OuterProducts(NodePass):
    """Rewrite a matrix product with an inner dimension of 1 as a broadcast pointwise product, if the result is added to a matrix.

    Such a sum updates the state of linear attention. A pointwise product can be int16 like the state (``find_carried_states``).
    """

    targets = (_aten.matmul.default, _aten.bmm.default)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        first, second = node.args[:2]
        reader = only_user(node)
        if reader is None or reader.target is not _aten.add.Tensor or node.meta["val"].dim() < 2:
            return False
        if not isinstance(first, Node) or not isinstance(second, Node) or first.meta["val"].shape[-1:] != (1,):
            return False
        if min(item.meta["val"].dim() for item in (first, second)) < 2 or dtype_of(node) != torch.float32:
            return False
        if any(constant_of(module, item) is not None for item in (first, second)):
            return False
        return replace(node, add_call(module, node, _MUL, first, second))


def _roots(node: Node) -> set[Node]:
    """Return the nodes with the shape of ``node`` of which ``node`` is a pointwise function."""
    if not is_pointwise(node):
        return {node}
    shape = node.meta["val"].shape
    sources = [source for source in node.all_input_nodes if source.op != "get_attr"]
    if not sources or any(source.meta["val"].shape != shape for source in sources):
        return {node}
    return set().union(*map(_roots, sources))
