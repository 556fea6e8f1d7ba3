# SPDX-License-Identifier: BSD-3-Clause
"""Comparison, logical and select operators, extrema with their positions, running sums, sorts and searches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx import Node

from openneutron.ir import DType, QuantParams, per_tensor
from openneutron.pytorch.graph.program import (
    DTYPE_OF_TORCH,
    WITH_INTEGERS,
    Reject,
    Rejected,
    arguments_of,
    op_name,
    shape_of,
    short_name,
)
from openneutron.pytorch.operators.annotations import LARGEST_VALUE
from openneutron.pytorch.operators.rules.context import Context, Shape, Value, broadcasting, ends_of, plain
from openneutron.pytorch.operators.rules.tables import KEPT, Keep, Layout, always, decomposes, lowers

_aten = torch.ops.aten

MOST_ADDED = 512
"""The limit on positions of a running sum. Its matrix of ones has the square of this number in bytes."""


def out_of_reach(number: float) -> bool:
    return not abs(number) <= LARGEST_VALUE


def _number(like: Tensor, number: float) -> Tensor:
    return torch.full((), number, dtype=like.dtype)


@decomposes("aten.masked_fill.Scalar")
def decompose_masked_fill(self: Tensor, mask: Tensor, value: float) -> Tensor | Keep:
    if not self.is_floating_point() or out_of_reach(value):
        return KEPT
    return _aten.where.self(mask, _number(self, value), self)


@decomposes("aten.eq.Scalar")
def equal_to_number(self: Tensor, other: float) -> Tensor | Keep:
    return _of_boolean(self, other, bool(other))


@decomposes("aten.ne.Scalar")
def unequal_to_number(self: Tensor, other: float) -> Tensor | Keep:
    return _of_boolean(self, other, not other)


def _of_boolean(self: Tensor, other: float, stays: bool) -> Tensor | Keep:
    """Return the comparison of a boolean tensor with 0 or 1. It is two negations if the result equals the tensor
    (``stays``), and one negation otherwise.

    Return KEPT for another type or another number.
    """
    if self.dtype != torch.bool or other not in (0, 1):
        return KEPT
    negated = _aten.logical_not.default(self)
    return _aten.logical_not.default(negated) if stays else negated


@decomposes("aten.where.ScalarOther")
def where_or_number(condition: Tensor, self: Tensor, other: float) -> Tensor | Keep:
    return _chosen(_aten.logical_not.default(condition), other, self)


def _chosen(condition: Tensor, number: float, otherwise: Tensor) -> Tensor | Keep:
    if not otherwise.is_floating_point():
        return KEPT
    if out_of_reach(number) and torch.broadcast_shapes(condition.shape, otherwise.shape) == otherwise.shape:
        return _aten.masked_fill.Scalar(otherwise, condition, number)
    return _aten.where.self(condition, _number(otherwise, number), otherwise)


@decomposes("aten.where.Scalar")
def where_numbers(condition: Tensor, self: float, other: float) -> Tensor | Keep:
    if not (isinstance(self, float) and isinstance(other, float)):
        return KEPT
    return _aten.where.self(condition, torch.full((), self), torch.full((), other))


def _extreme(value_of: Any, position_of: Any) -> Callable[..., Any]:
    """Return the decomposition of max or min. Along a dimension, the positions are a second result."""

    def rule(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | tuple[Tensor, Tensor] | Keep:
        if not self.is_floating_point() or (dim is not None and not self.dim()):
            return KEPT
        if dim is None:
            return value_of(self, list(range(self.dim())))
        return value_of(self, [dim], keepdim), position_of(self, dim, keepdim)

    return rule


decomposes("aten.max.default", "aten.max.dim")(_extreme(_aten.amax.default, _aten.argmax.default))
decomposes("aten.min.default", "aten.min.dim")(_extreme(_aten.amin.default, _aten.argmin.default))


@decomposes("aten.cumsum.default")
def running_sum(self: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor | Keep:
    """Return the product with a triangular matrix of ones, which int8 represents exactly."""
    if not self.is_floating_point() or dtype not in (None, self.dtype) or not self.numel():
        return KEPT
    if self.numel() == 1:
        return self.clone()
    count = self.shape[dim]
    if count > MOST_ADDED:
        return KEPT
    rows = self.transpose(dim, -1) if self.dim() > 1 else self.reshape(1, count)
    sums = _aten.linear.default(rows, torch.ones(count, count, dtype=self.dtype).tril())
    return sums.transpose(dim, -1) if self.dim() > 1 else sums.reshape(count)


# -- sorts, which become topk, the only one that ExecuTorch's runtime has


@decomposes("aten.sort.default")
def sort(self: Tensor, dim: int, descending: bool) -> tuple[Tensor, Tensor] | Keep:
    return _sorted(self, dim, descending)


@decomposes("aten.sort.stable")
def stable_sort(self: Tensor, stable: bool | None, dim: int, descending: bool) -> tuple[Tensor, Tensor] | Keep:
    """Decompose a sort to topk, unless it must be stable: topk does not keep the order of equal values."""
    return KEPT if stable else _sorted(self, dim, descending)


def _sorted(self: Tensor, dim: int, descending: bool) -> tuple[Tensor, Tensor] | Keep:
    if not self.dim() or self.dtype == torch.bool:
        return KEPT
    values, indices = torch.topk(self, self.shape[dim], dim, largest=descending, sorted=True)
    return values, indices


@decomposes("aten.kthvalue.default")
def kth_value(self: Tensor, k: int, dim: int, keepdim: bool) -> tuple[Tensor, Tensor] | Keep:
    return _kth(self, k, dim, keepdim)


@decomposes("aten.median.dim")
def median_of_axis(self: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor] | Keep:
    """Return the median and its position. The median of an even number of values is the smaller of the middle two."""
    return _kth(self, (self.shape[dim] + 1) // 2, dim, keepdim) if self.dim() else KEPT


@decomposes("aten.median.default")
def median(self: Tensor) -> Tensor | Keep:
    if not self.dim() or not self.numel():
        return KEPT
    found = _kth(self.reshape(-1), (self.numel() + 1) // 2, 0, False)
    return found if isinstance(found, Keep) else found[0]


def _kth(self: Tensor, k: int, dim: int, keepdim: bool) -> tuple[Tensor, Tensor] | Keep:
    """Return the k-th smallest values, counted from 1, and their indices."""
    if not self.dim() or not self.numel():
        return KEPT
    found = (item.narrow(dim, k - 1, 1) for item in torch.topk(self, k, dim, largest=False, sorted=True))
    values, indices = (item if keepdim else item.squeeze(dim) for item in found)
    return values, indices


@decomposes("aten.bucketize.Tensor")
def bucketize(self: Tensor, boundaries: Tensor, out_int32: bool, right: bool) -> Tensor | Keep:
    return _places(boundaries, self, out_int32, right)


@decomposes("aten.searchsorted.Tensor")
def search_sorted(
    sorted_sequence: Tensor, self: Tensor, out_int32: bool, right: bool, side: str | None, sorter: Tensor | None
) -> Tensor | Keep:
    if sorter is not None:
        return KEPT
    return _places(sorted_sequence, self, out_int32, right or side == "right")


def _places(boundaries: Tensor, values: Tensor, out_int32: bool, right: bool) -> Tensor | Keep:
    """Return for each value the number of boundaries below the value, or with ``right`` at or below the value."""
    if not values.dim() or not boundaries.numel() or values.numel() * boundaries.shape[-1] > MOST_COMPARED:
        return KEPT
    limits = boundaries if boundaries.dim() == 1 else boundaries.unsqueeze(-2)
    passed = values.unsqueeze(-1) >= limits if right else values.unsqueeze(-1) > limits
    return passed.to(torch.int32 if out_int32 else torch.int64).sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


@decomposes("aten.isin.Tensor_Tensor")
def is_in(elements: Tensor, test_elements: Tensor, assume_unique: bool, invert: bool) -> Tensor | Keep:
    del assume_unique
    if not elements.dim() or not test_elements.numel() or elements.numel() * test_elements.numel() > MOST_COMPARED:
        return KEPT
    found = (elements.unsqueeze(-1) == test_elements.reshape(-1)).any(-1)
    return ~found if invert else found


MOST_COMPARED = 1 << 18
"""The limit on comparisons that replace one search. Each takes a byte of memory. The number is our own choice."""


LEAST_SCALE = 1 / 256
"""The smallest scale at which LiteRT, which compares multiples of 1/256, distinguishes all values of one quantization."""

FINE_SCALE = 1 / 16
"""The smallest scale at which LiteRT compares values of two quantizations to 1/16 of a step or better."""

COMPARED_SCALE = 0.5
"""The larger scale of two operands that are multiplied before their comparison. LiteRT requires scales below 1."""


@lowers("aten.argmax.default", "aten.argmin.default", layout=Layout.OWN, exact=True, emits=("arg_max", "arg_min"))
def position(node: Node, context: Context) -> Value | Reject:
    """Return the position of the extremum as int64, like PyTorch. Of several equal values, the first one counts."""
    given = arguments_of(node)
    data, dim = context.value(given["self"]), given["dim"]
    if dim is None or not data.shape:
        data, dim = context.viewed(data, (math.prod(data.shape),)), 0
    data = context.settled(data)
    axis = dim % len(data.shape)
    place = data.order.index(axis)
    shape = (*data.shape[:axis], *data.shape[axis + 1 :])
    order = tuple(other - (other > axis) for other in data.order if other != axis)
    stored = tuple(shape[other] for other in order)
    operands = (data.tensor, context.add_constant(f"{node.name}_axis", np.array(place, np.int32)))
    op = "arg_max" if op_name(node).startswith("aten.argmax") else "arg_min"
    name = context.emit(op, operands, stored, None, node.name, DType.INT64, output_type="INT64")
    return context.viewed(Value(name, shape, order, shape), shape_of(node))


_COMPARISONS = {
    "eq": ("equal", np.equal),
    "ne": ("not_equal", np.not_equal),
    "lt": ("less", np.less),
    "le": ("less_equal", np.less_equal),
    "gt": ("greater", np.greater),
    "ge": ("greater_equal", np.greater_equal),
}


def _comparison(name: str) -> Callable[[Node, Context], Value | Reject]:
    op, relation = _COMPARISONS[name]

    def rule(node: Node, context: Context) -> Value | Reject:
        a, other = context.value(node.args[0]), node.args[1]
        if context.dtype(a) is DType.BOOL:
            return _of_truths(node, context, op)
        if context.dtype(a) in INTEGERS and name in ("eq", "ne"):
            return of_integers(node, context, a, other, op)
        if context.dtype(a) in INTEGERS or (
            isinstance(other, Node) and context.dtype(context.value(other)) in INTEGERS
        ):
            return _ordered_integers(node, context, a, other, op)
        if not isinstance(other, Node):
            assert isinstance(other, (int, float))
            reals = _reals(context.quant(a), context.dtype(a))
            (a,) = _comparable(node, context, (a,), name)
            return _with_number(node, context, a, relation(reals, np.float32(other)), name)
        values = _comparable(node, context, (a, context.value(other)), name)
        return broadcasting(node, context, op, values, None, DType.BOOL)

    return rule


INTEGERS = (DType.INT32, DType.INT64)

_BYTES = per_tensor(0.5, 0)
"""A quantization with which EQUAL distinguishes any two different bytes."""


def of_integers(node: Node, context: Context, a: Value, other: object, op: str) -> Value | Reject:
    """Lower ``op`` (equal or not_equal) of integers and a number, or integers of the same type, to comparisons of bytes."""
    dtype = context.dtype(a)
    size = dtype.size_bytes
    if not isinstance(other, Node):
        number = np.array([_whole_number(other, dtype)], dtype.numpy).view(np.int8).reshape(1, size)
        limit = context.add_constant(f"{node.name}_bytes", number, _BYTES)
        stored = context.tensors[a.tensor].shape
        operands, shape = (_bytes(context, a.tensor, (math.prod(stored),)), limit), (math.prod(stored), size)
        whole = _all_bytes(node, context, op, operands, shape)
        return Value(context.reshaped(whole, stored), a.shape, a.order, a.base)
    b = context.value(other)
    if context.dtype(b) is not dtype:
        return Reject(f"its inputs are {dtype} and {context.dtype(b)}; integers of one type can be compared")
    result = shape_of(node)
    both = [
        _bytes(
            context,
            context.arranged(value, tuple(range(len(value.shape)))),
            (*(1,) * (len(result) - len(value.shape)), *value.shape),
        )
        for value in (a, b)
    ]
    whole = _all_bytes(node, context, op, both, (*result, size))
    return Value(whole, result, tuple(range(len(result))), result)


def _bytes(context: Context, tensor: str, shape: Shape) -> str:
    """Return an int8 tensor of the bytes of integers: the integers in ``shape``, the bytes of each along a last axis."""
    here = context.tensors[tensor]
    size = here.dtype.size_bytes
    if here.data is not None:
        numbers = np.ascontiguousarray(here.data).reshape(*shape, 1).view(np.int8)
        return context.add_constant(f"{here.name}_bytes", numbers, _BYTES)
    name = context.emit("bitcast", (here.name,), (*here.shape, size), _BYTES, f"{here.name}_bytes", DType.INT8)
    return context.reshaped(name, (*shape, size))


def _all_bytes(node: Node, context: Context, op: str, operands: Sequence[str], shape: Shape) -> str:
    """Compare integers that are given as bytes along the last axis. They are equal if all bytes are (``equal``), and
    differ if any byte does (``not_equal``).

    Return the name of the boolean result, whose shape is ``shape`` without the last axis.
    """
    same = context.emit(op, operands, shape, None, f"{node.name}_of_bytes", DType.BOOL)
    axes = context.add_integers(f"{node.name}_axes", [len(shape) - 1])
    over = "reduce_all" if op == "equal" else "reduce_any"
    return context.emit(over, (same, axes), shape[:-1], None, node.name, DType.BOOL, keep_dims=False)


MOST_ORDERED = 254
"""Integers from 0 to below this number are ordered as int8. The other two int8 values represent all smaller and larger integers."""

_LOWEST = per_tensor(0.5, -MOST_ORDERED // 2)
"""The parameters at which 0 is stored one above the least int8 value; EQUAL and LESS distinguish any two stored values."""


def _ordered_integers(node: Node, context: Context, a: Value, other: object, op: str) -> Value | Reject:
    """Compare integers with constants, in either order, as int8. The constants must lie in [0, ``MOST_ORDERED``).
    Computed integers outside of this range saturate, which keeps their order with the constants."""
    if isinstance(other, Node):
        values = [a, context.value(other)]
    else:
        number = np.array(_whole_number(other, DType.INT64), np.int64)
        values = [a, plain(context.add_constant(f"{node.name}_number", number), ())]
    held = [context.tensors[value.tensor].data for value in values]
    known = [item for item in held if item is not None]
    if len(known) != 1:
        return Reject("it orders two computed tensors of integers; one of them must be constant", WITH_INTEGERS)
    if any(not 0 <= number < MOST_ORDERED for number in (int(known[0].min()), int(known[0].max()))):
        return Reject(
            f"it orders integers and constants from {known[0].min()} to {known[0].max()}; these must be at least 0 and below "
            f"{MOST_ORDERED}",
            WITH_INTEGERS,
        )
    stored = [
        _saturated(context, value, _LOWEST, f"{node.name}_{place}", scale=1.0) for place, value in enumerate(values)
    ]
    if any(item is None for item in stored):
        return Reject(f"it compares {' and '.join(str(context.dtype(value)) for value in values)}", WITH_INTEGERS)
    return broadcasting(node, context, op, [item for item in stored if item is not None], None, DType.BOOL)


def _whole_number(number: object, dtype: DType) -> int:
    """Return a Python number that integers of ``dtype`` are compared with, as an int.

    Raises Rejected for a number that ``dtype`` does not hold: one with a fraction, NaN, an infinity, or one that is too large.
    """
    assert isinstance(number, (int, float))
    bounds = np.iinfo(dtype.numpy)
    if not (bounds.min <= number <= bounds.max and number == int(number)):
        raise Rejected(f"it compares {dtype} with {number}; a whole number that {dtype} holds is needed", WITH_INTEGERS)
    return int(number)


def numbers_of_integers(node: Node, context: Context, value: Value) -> Value | Reject:
    """Convert int32 or int64 integers to int8 in the quantization of the node's result, saturated at its range."""
    quant = context.results.quant(node)
    if context.results.dtype(node) is not DType.INT8:
        return Reject(f"it converts {context.dtype(value)} to {context.results.dtype(node)}; int8 is what there is")
    found = _saturated(context, value, quant, node.name)
    if found is None:
        ends = [(end - quant.zero_point) * quant.scale for end in (-128, 127)]
        return Reject(
            f"it converts integers from {ends[0]:.6g} to {ends[1]:.6g}, by their low byte; [-128, 127] or [0, 255] must hold them"
        )
    return found


def integers_of_numbers(node: Node, context: Context, value: Value) -> Value | Reject:
    """Convert quantized int8 values to int32 or int64, without their fractions. A table has the low byte of each result."""
    numbers = np.trunc(_reals(context.quant(value), DType.INT8)).astype(np.int64)
    dtype = DTYPE_OF_TORCH[node.meta["val"].dtype]
    is_signed = numbers[0] >= -128 and numbers[-1] <= 127
    if not is_signed and not (numbers[0] >= 0 and numbers[-1] <= 255):
        return Reject(
            f"it converts numbers from {numbers[0]} to {numbers[-1]} to {dtype}; [-128, 127] or [0, 255] must hold them"
        )
    shape = context.tensors[value.tensor].shape
    entries = context.add_constant(f"{node.name}_table", numbers.astype(np.uint8).view(np.int8), _BYTES)
    low = context.emit("lookup", (value.tensor, entries), shape, _BYTES, f"{node.name}_low")
    if is_signed:
        name = context.emit("cast", (low,), shape, None, node.name, dtype)
    else:
        count = math.prod(shape)
        rest = context.add_constant(f"{node.name}_rest", np.zeros((count, dtype.size_bytes - 1), np.int8), _BYTES)
        operands, whole = (context.reshaped(low, (count, 1)), rest), (count, dtype.size_bytes)
        joined = context.emit("concatenation", operands, whole, _BYTES, f"{node.name}_bytes", axis=1)
        name = context.reshaped(context.emit("bitcast", (joined,), (count,), None, node.name, dtype), shape)
    return Value(name, value.shape, value.order, value.base)


def _saturated(
    context: Context, value: Value, quant: QuantParams, stem: str, scale: float | None = None
) -> Value | None:
    """Return int32 or int64 integers quantized to int8 as PyTorch quantizes them. ``scale``: the scale to quantize
    with, if it is not that of ``quant``. The tensor of the result has ``quant`` in any case.

    Inside of one range, [0, 255] or [-128, 127], a lookup table of the integer's low byte gives the result. Outside
    of it, all integers must saturate, and the sign gives the result. Return None if neither range is enough.
    """
    here = context.tensors[value.tensor]

    def stored(numbers: np.ndarray) -> np.ndarray:
        steps = np.rint(numbers.astype(np.float32) * np.float32(1.0 / (scale or quant.scale))) + quant.zero_point
        return np.clip(steps, -128, 127).astype(np.int8)

    if here.data is not None:
        name = context.add_constant(f"{stem}_stored", stored(here.data), quant)
        return Value(name, value.shape, value.order, value.base)
    bytes_as_stored = np.arange(-128, 128)
    for lowest in (0, -128):
        below, above = stored(np.array([lowest - 1, lowest + 256]))
        if (below, above) == (-128, 127):
            break
    else:
        return None
    numbers = np.where(bytes_as_stored < lowest, bytes_as_stored + 256, bytes_as_stored)
    count, size = math.prod(here.shape), here.dtype.size_bytes
    parts = _bytes(context, here.name, (count,))

    def cut(first: int, last: int, what: str) -> str:
        begin, extent = (
            context.add_integers(f"{stem}_{what}_{word}", pair)
            for word, pair in (("begin", [0, first]), ("size", [count, last - first]))
        )
        return context.emit("slice", (parts, begin, extent), (count, last - first), _BYTES, f"{stem}_{what}")

    def table(source: str, entries: np.ndarray, kind: QuantParams, what: str) -> str:
        held = context.add_constant(f"{stem}_{what}_table", entries.astype(np.int8), kind)
        return context.emit("lookup", (source, held), (count, 1), kind, f"{stem}_{what}")

    low, rest = cut(0, 1, "low"), cut(1, size, "rest")
    inside = table(low, stored(numbers), quant, "inside")
    sign = context.add_constant(f"{stem}_zero", np.zeros((1, 1), np.int8), _BYTES)
    if lowest:
        sign = table(low, np.where(bytes_as_stored < 0, -1, 0), _BYTES, "sign")
    same = context.emit("equal", (rest, sign), (count, size - 1), None, f"{stem}_same", DType.BOOL)
    axes = context.add_integers(f"{stem}_axes", [1])
    fits = context.emit("reduce_all", (same, axes), (count, 1), None, f"{stem}_fits", DType.BOOL, keep_dims=True)
    outside = table(cut(size - 1, size, "last"), np.where(bytes_as_stored < 0, -128, 127), quant, "outside")
    name = context.emit("select_v2", (fits, inside, outside), (count, 1), quant, f"{stem}_number")
    return Value(context.reshaped(name, here.shape), value.shape, value.order, value.base)


_BESIDE_COMPARISONS = (
    "equal", "not_equal", "less", "greater_equal", "mul", "slice", "bitcast", "lookup", "reduce_all", "reduce_any", "select_v2",
)  # fmt: skip
"""Operators that a comparison may add in addition to its own: to compare integers byte by byte, and to change scales (mul)."""

for _name, (_op, _) in _COMPARISONS.items():
    _emitted = (_op, *(other for other in _BESIDE_COMPARISONS if other != _op))
    lowers(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar", exact=True, emits=_emitted)(_comparison(_name))


def _reals(quant: QuantParams, dtype: DType) -> np.ndarray:
    """Return the real numbers of all stored values, the lowest first."""
    least, most = ends_of(dtype)
    steps = np.arange(least - quant.zero_point, most + 1 - quant.zero_point)
    return steps.astype(np.float32) * np.float32(quant.scale)


def _with_number(node: Node, context: Context, a: Value, holds: np.ndarray, name: str) -> Value:
    """Lower a comparison with a number to a comparison of quantized integers with one integer.

    holds: the result of the comparison for each possible quantized integer, from the lowest to the highest.
    """
    if name in ("eq", "ne"):
        odd = np.flatnonzero(holds == (name == "eq"))
        op = ("equal" if name == "eq" else "not_equal") if odd.size else ("less" if name == "eq" else "greater_equal")
        bound = int(odd[0]) if odd.size else 0
    elif name in ("lt", "le"):
        op, bound = ("greater_equal", 0) if holds.all() else ("less", int(holds.sum()))
    else:
        op, bound = ("greater_equal", int(np.argmax(holds))) if holds.any() else ("less", 0)
    dtype = context.dtype(a)
    limit = context.add_number(f"{node.name}_bound", bound + ends_of(dtype)[0], context.quant(a), dtype)
    return broadcasting(node, context, op, (a, limit), None, DType.BOOL)


def _comparable(node: Node, context: Context, values: Sequence[Value], name: str) -> list[Value]:
    """Return the values at scales that LiteRT's comparison accepts and at which it is accurate.

    If their scales are too large or too small, all values are multiplied by one number, which does not change the
    comparison. LiteRT orders int16 values by their quantized integers, so that all of them get the largest of their
    scales.
    """
    quants = [context.quant(value) for value in values]
    if context.dtype(values[0]) is DType.INT16 and name not in ("eq", "ne"):
        coarse = max(quants, key=lambda quant: quant.scale)
        return [_at_scale(context, value, coarse) for value in values]
    largest = max(quant.scale for quant in quants)
    least = LEAST_SCALE if all(quant == quants[0] for quant in quants) else FINE_SCALE
    if least <= largest < 1:
        return list(values)
    factor = COMPARED_SCALE / largest
    times = context.add_factor(f"{node.name}_factor", factor, context.dtype(values[0]))
    made = {value.tensor: _multiplied(node, context, value, factor, times) for value in values}
    return [Value(made[value.tensor], value.shape, value.order, value.base) for value in values]


def _multiplied(node: Node, context: Context, value: Value, factor: float, times: str) -> str:
    """Return a tensor with the same stored values, and the scale multiplied by ``factor``."""
    here = context.tensors[value.tensor]
    assert here.quant is not None
    quant = per_tensor(here.quant.scale * factor, here.quant.zero_point)
    if here.data is not None:
        return context.add_constant(f"{here.name}_scaled", here.data, quant)
    return context.emit("mul", (here.name, times), here.shape, quant, f"{node.name}_scaled")


_LOGICAL = {
    "logical_and": "logical_and",
    "logical_or": "logical_or",
    "logical_xor": "not_equal",
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "not_equal",
    "logical_not": "logical_not",
    "bitwise_not": "logical_not",
}


def _of_truths(node: Node, context: Context, op: str) -> Value | Reject:
    values = [context.value(item) for item in node.args[: len(node.all_input_nodes) or 1]]
    if any(context.dtype(value) is not DType.BOOL for value in values):
        kinds = " and ".join(str(context.dtype(value)) for value in values)
        return Reject(f"its inputs are {kinds}; {short_name(node)} is there for bool")
    return broadcasting(node, context, op, values, None, DType.BOOL)


def _logical(op: str) -> Callable[[Node, Context], Value | Reject]:
    def rule(node: Node, context: Context) -> Value | Reject:
        return _of_truths(node, context, op)

    return rule


for _name, _op in _LOGICAL.items():
    _form = "Tensor" if _name.startswith("bitwise") and not _name.endswith("not") else "default"
    lowers(f"aten.{_name}.{_form}", exact=True, emits=(_op,))(_logical(_op))


@lowers("aten.where.self", emits=("lookup", "select_v2"))
def where(node: Node, context: Context) -> Value | Reject:
    given, quant = arguments_of(node), context.results.quant(node)
    a, b = (_at_scale(context, context.value(given[name]), quant) for name in ("self", "other"))
    return broadcasting(node, context, "select_v2", (_truth(context, given["condition"]), a, b), quant)


@lowers("aten.masked_fill.Scalar", preserve=always, moves=True, emits=("lookup", "select_v2"))
def masked_fill(node: Node, context: Context) -> Value | Reject:
    """Lower a fill to SELECT_V2. The filler saturates at the result's range."""
    given, quant = arguments_of(node), context.results.quant(node)
    if math.isnan(given["value"]):
        return Reject("it fills with NaN, which no integer can hold")
    data = _at_scale(context, context.value(given["self"]), quant)
    dtype = context.dtype(data)
    stored = context.pad_value(quant, float(given["value"]), dtype)
    filler = context.add_number(f"{node.name}_value", stored, quant, dtype)
    return broadcasting(node, context, "select_v2", (_truth(context, given["mask"]), filler, data), quant)


def truths_as_numbers(node: Node, context: Context, condition: Value) -> Value:
    """Return 1.0 for true and 0.0 for false, in the quantization of the node's result."""
    quant, dtype = context.results.quant(node), context.results.dtype(node)
    one, zero = (
        context.add_number(f"{node.name}_{word}", context.pad_value(quant, number, dtype), quant, dtype)
        for word, number in (("one", 1.0), ("zero", 0.0))
    )
    return broadcasting(node, context, "select_v2", (condition, one, zero), quant)


def _truth(context: Context, node: object) -> Value:
    value = context.value(node)
    if context.dtype(value) is not DType.BOOL:
        raise Rejected(f"its condition is {context.dtype(value)}; it must be bool")
    return value


def _at_scale(context: Context, value: Value, quant: QuantParams) -> Value:
    """Return the value at this scale and zero point, as PyTorch quantizes it.

    A constant is quantized anew, an int8 value is looked up in a table, and an int16 value goes through QUANTIZE. LiteRT's
    QUANTIZE rounds twice: if the scale grows by little more than 2, many values are a step off.
    """
    here = context.tensors[value.tensor]
    if here.quant == quant:
        return value
    least, most = ends_of(here.dtype)
    reals = _reals(context.quant(value), here.dtype)
    stored = np.rint(reals * np.float32(1.0 / quant.scale)) + quant.zero_point
    table = np.clip(stored, least, most).astype(here.dtype.numpy)
    stem = f"{here.name}_requantized"
    if here.data is not None:
        name = context.add_constant(stem, table[here.data.astype(np.int32) - least], quant)
    elif here.dtype is DType.INT16:
        return context.requantized(value, quant, stem)
    else:
        entries = context.add_constant(f"{stem}_table", table, quant)
        name = context.emit("lookup", (here.name, entries), here.shape, quant, stem)
    return Value(name, value.shape, value.order, value.base)


def is_truth(node: object) -> bool:
    """Return whether an edge node's values are booleans."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    return isinstance(value, torch.Tensor) and value.dtype == torch.bool
