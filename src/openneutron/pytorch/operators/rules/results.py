# SPDX-License-Identifier: BSD-3-Clause
"""Edge values and the order of their elements in a graph's tensors; quantization and fused clamps of a node's result.

A value of the edge program has dimensions in PyTorch's order. Its tensor in the graph may hold them in another order, for
instance NHWC. Operators that don't care about the order keep it; those that do ask for one, and only then is something
moved. A permute costs nothing, and neither does a view as long as it can be said of the stored order too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from torch.fx import Node

from openneutron.ir import DType, QuantParams
from openneutron.pytorch.graph.program import (
    GETITEM,
    QUANTIZE_FIRST,
    Constants,
    Rejected,
    activation_params,
    is_compute,
    is_dequantize,
    is_quantize,
    model_name,
    op_name,
    quant_params,
    short_name,
    stored_type,
)
from openneutron.pytorch.operators.rules.tables import LOWER_RULES

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """An edge value of shape ``shape``, held by the graph's tensor ``tensor``.

    The tensor's axis i is axis ``order[i]`` of ``base``. ``base`` is ``shape``, except where a view could not yet be said of
    the stored order: then the value is ``base`` read row by row in ``shape``.
    """

    tensor: str
    shape: Shape
    order: Shape
    base: Shape

    @property
    def is_settled(self) -> bool:
        """Return whether the tensor holds ``shape``'s own dimensions."""
        return self.base == self.shape

    @property
    def stored(self) -> Shape:
        """Return the tensor's shape."""
        return tuple(self.base[axis] for axis in self.order)

    def verify(self) -> None:
        """Assert that order and shapes fit each other."""
        assert sorted(self.order) == list(range(len(self.base))), f"{self.tensor}: order {self.order} of {self.base}"
        assert math.prod(self.base) == math.prod(self.shape), f"{self.tensor}: {self.base} is no view of {self.shape}"


def plain(tensor: str, shape: Shape) -> Value:
    """Return a value whose tensor has its dimensions in their own order."""
    return Value(tensor, shape, tuple(range(len(shape))), shape)


def without_ones(order: Shape, base: Shape) -> Shape:
    """Return the order of the axes that are longer than one: two orders that agree here lie alike in memory."""
    return tuple(axis for axis in order if base[axis] != 1)


def lies_as(base: Shape, order: Shape, other: Shape) -> bool:
    """Return whether the same elements in these two orders of axes are the same bytes."""
    return without_ones(order, base) == without_ones(other, base)


def permuted(value: Value, dims: Shape) -> Value:
    """Return the settled value with its dimensions in another order; the tensor stays as it is."""
    assert value.is_settled
    base = tuple(value.base[dim] for dim in dims)
    place = {dim: new for new, dim in enumerate(dims)}
    return Value(value.tensor, base, tuple(place[axis] for axis in value.order), base)


def groups_of(before: Shape, after: Shape) -> list[tuple[list[int], list[int]]]:
    """Return the finest pairs of runs of axes with equal products, of two shapes with as many elements; ones left
    out."""
    left = [axis for axis, extent in enumerate(before) if extent != 1]
    right = [axis for axis, extent in enumerate(after) if extent != 1]
    groups: list[tuple[list[int], list[int]]] = []
    while left and right:
        first, second = [left.pop(0)], [right.pop(0)]
        a, b = before[first[0]], after[second[0]]
        while a != b:
            if a < b:
                first.append(left.pop(0))
                a *= before[first[-1]]
            else:
                second.append(right.pop(0))
                b *= after[second[-1]]
        groups.append((first, second))
    assert not left and not right, f"{before} and {after} have not as many elements"
    return groups


def order_for_view(base: Shape, order: Shape, shape: Shape) -> Shape:
    """Return the order nearest to ``order`` in which the stored bytes can be read in ``shape``: the axes that become
    one run are gathered, in their own order, where the last of them lies."""
    place = {axis: index for index, axis in enumerate(order)}
    gathered = [(max(place[axis] for axis in run), run) for run, _ in groups_of(base, shape)]
    loose = [(place[axis], [axis]) for axis in order if base[axis] == 1]
    return tuple(axis for _, run in sorted(gathered + loose) for axis in run)


def order_after_view(base: Shape, order: Shape, shape: Shape) -> Shape | None:
    """Return the order in which the stored bytes hold ``shape``'s dimensions, or None.

    Each run of axes that becomes another run must lie together and in its own order.
    """
    place = {axis: index for index, axis in enumerate(without_ones(order, base))}
    runs = []
    for old, new in groups_of(base, shape):
        first = place[old[0]]
        if [place[axis] for axis in old] != list(range(first, first + len(old))):
            return None
        runs.append((first, new))
    result = [axis for _, run in sorted(runs) for axis in run]
    # Axes of one lie anywhere; beside the axis before them they keep a plain order plain.
    for axis, extent in enumerate(shape):
        if extent == 1:
            result.insert(result.index(axis - 1) + 1 if axis else 0, axis)
    return tuple(result)


def is_clamp(node: Node) -> bool:
    return op_name(node) in ACTIVATIONS


def is_fused_clamp(node: Node) -> bool:
    """Return whether a node is one of the clamps that LiteRT's operators can end with."""
    try:
        return is_clamp(node) and clamp_bounds(node) in FUSED.values()
    except Rejected:
        return False


def clamp_bounds(node: Node) -> Bounds:
    """Return what a clamping node clamps to. Rejects bounds that are tensors."""
    defaults = ACTIVATIONS[op_name(node)]
    names = ("min_val", "max_val") if op_name(node).startswith("aten.hardtanh") else ("min", "max")
    found: list[float | None] = []
    for place, (name, default) in enumerate(zip(names, defaults, strict=True), start=1):
        bound = node.args[place] if place < len(node.args) else node.kwargs.get(name, default)
        if bound is not None and not isinstance(bound, (int, float)):
            raise Rejected("its bounds are computed at run time")
        found.append(None if bound is None else float(bound))
    return Bounds(*found)


def moves(node: Node) -> bool:
    """Return whether the node only moves values."""
    name = op_name(node)
    return name == GETITEM or (name in LOWER_RULES and LOWER_RULES[name].moves)


Stored = tuple[QuantParams, DType]
"""The quantization of a result, and the type that holds it."""


class Results:
    """Looks ahead from a node to the quantize nodes its result ends in."""

    def __init__(self, constants: Constants) -> None:
        self._constants = constants

    def quant(self, node: Node) -> QuantParams:
        """Return the quantization of a node's result: that of the quantize nodes behind it, or behind what moves it on;
        where there are none, a node that only moves values has its input's."""
        return self._stored(node)[0]

    def dtype(self, node: Node) -> DType:
        """Return the type of a node's result, of the same quantize nodes as ``quant``."""
        return self._stored(node)[1]

    def _stored(self, node: Node) -> Stored:
        found = self._ahead(node)
        if moves(node):
            # The quantize node converts what moves on in its own type.
            before = self._behind(node)
            found = before if found is None or (before is not None and before[1] is not found[1]) else found
        if found is None:
            raise Rejected(self._why_float(node), QUANTIZE_FIRST)
        return found

    def is_quantized(self, node: Node) -> bool:
        """Return whether the node's result is quantized before anything computes with it."""
        return self._ahead(node) is not None

    def fused(self, node: Node) -> Node | None:
        """Return the clamp that runs inside ``node``: its only user, of a node that can take one."""
        rule = LOWER_RULES.get(op_name(node))
        if rule is None or not rule.fuses or len(node.users) != 1:
            return None
        user = next(iter(node.users))
        return user if is_clamp(user) else None

    def bounds(self, node: Node) -> Bounds:
        """Return what the clamp inside ``node`` clamps to."""
        clamp = self.fused(node)
        return UNBOUNDED if clamp is None else clamp_bounds(clamp)

    def _ahead(self, node: Node) -> Stored | None:
        clamp = self.fused(node)
        if clamp is not None:
            return self._ahead(clamp)
        found: Stored | None = None
        for user in node.users:
            if is_quantize(user):
                stored = activation_params(user, self._constants), stored_type(user)
            elif moves(user):
                further = self._ahead(user)
                if further is None:
                    return None
                stored = further
            else:
                return None
            if found is not None and stored != found:
                raise Rejected(f"its result is quantized in two ways, {found[0]} and {stored[0]}")
            found = stored
        return found

    def _behind(self, node: Node) -> Stored | None:
        while moves(node):
            source = node.args[0]
            if isinstance(source, (list, tuple)):
                source = source[0]
            if not isinstance(source, Node):
                return None
            node = source
        return (quant_params(node, self._constants), stored_type(node)) if is_dequantize(node) else None

    def _why_float(self, node: Node) -> str:
        for user in node.users:
            if is_compute(user):
                return f"{short_name(user)} '{model_name(user)}' reads its result before it is quantized"
            if user.op == "output":
                return "its result leaves the model before it is quantized"
        return "its result is not quantized"


def ends_of(dtype: DType) -> tuple[int, int]:
    """Return the smallest and the largest value that a type of activations stores."""
    ends = np.iinfo(dtype.numpy)
    return int(ends.min), int(ends.max)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Real numbers between which values are clamped; None is no bound."""

    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        low = "-inf" if self.low is None else f"{self.low:g}"
        return f"[{low}, {'inf' if self.high is None else f'{self.high:g}'}]"


UNBOUNDED = Bounds()

FUSED = {"NONE": UNBOUNDED, "RELU": Bounds(0.0), "RELU6": Bounds(0.0, 6.0), "RELU_N1_TO_1": Bounds(-1.0, 1.0)}
"""LiteRT's fused activations."""

ALONE = {
    "relu": Bounds(0.0),
    "relu6": Bounds(0.0, 6.0),
    "relu_n1_to_1": Bounds(-1.0, 1.0),
    "relu_0_to_1": Bounds(0.0, 1.0),
}
"""LiteRT's clamping operators."""


SATURATING = 2.0**16
"""Steps that saturate int8 from every zero point, and int16 from 0."""

ACTIVATIONS: Mapping[str, tuple[float | None, float | None]] = MappingProxyType(
    {
        "aten.relu.default": (0.0, None),
        "aten.relu6.default": (0.0, 6.0),
        "aten.hardtanh.default": (-1.0, 1.0),
        "aten.clamp.default": (None, None),
        "aten.clamp_min.default": (None, None),
    }
)
"""Operators that only clamp, with their bounds where arguments 1 and 2 don't say others. They can run inside the operator
before them."""


def stored_bounds(bounds: Bounds, quant: QuantParams, dtype: DType) -> tuple[int, int]:
    """Return the bounds as stored values, as LiteRT computes them: zero point + round(bound / scale), half away from zero,
    saturated."""
    least, most = ends_of(dtype)

    def stored(real: float | None, absent: int) -> int:
        if real is None or math.isinf(real):
            return absent
        with np.errstate(over="ignore"):
            steps = float(np.float32(real) / np.float32(quant.scale))
        steps = min(SATURATING, max(-SATURATING, steps))
        away = math.copysign(math.floor(abs(steps) + 0.5), steps)
        return int(min(most, max(least, quant.zero_point + away)))

    return stored(bounds.low, least), stored(bounds.high, most)


def fused_activation(bounds: Bounds, quant: QuantParams, dtype: DType = DType.INT8) -> str | None:
    """Return the fused activation that clamps results of these parameters to ``bounds``, the plainest first, or
    None."""
    wanted = stored_bounds(bounds, quant, dtype)
    return next((name for name, own in FUSED.items() if stored_bounds(own, quant, dtype) == wanted), None)


def clamp_operator(bounds: Bounds, quant: QuantParams, dtype: DType = DType.INT8) -> str | None:
    """Return the operator that clamps to ``bounds`` with results of these parameters; ``""`` where no value is
    clamped."""
    wanted = stored_bounds(bounds, quant, dtype)
    if wanted == ends_of(dtype):
        return ""
    return next((name for name, own in ALONE.items() if stored_bounds(own, quant, dtype) == wanted), None)
