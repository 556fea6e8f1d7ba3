# SPDX-License-Identifier: BSD-3-Clause
"""Operators that only move values or rename dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.fx import Node

from openneutron.ir import DType
from openneutron.pytorch.graph.program import ACTIVATIONS, GETITEM, Reject, arguments_of, is_number, op_name, shape_of
from openneutron.pytorch.operators.comparison import (
    INTEGERS,
    integers_of_numbers,
    is_truth,
    numbers_of_integers,
    of_integers,
    truths_as_numbers,
)
from openneutron.pytorch.operators.rules.context import Context, Shape, Value, permuted
from openneutron.pytorch.operators.rules.tables import DROPS, KEPT, Keep, Layout, decomposes, lowers

_aten = torch.ops.aten


def _part(x: Tensor, dim: int, start: int, end: int) -> Tensor:
    """Return the positions [start, end) of a dimension, or the tensor itself if these are all positions."""
    return x if (start, end) == (0, x.shape[dim]) else _aten.slice.Tensor(x, dim, start, end)


def _parts(x: Tensor, dim: int, sizes: Sequence[int]) -> list[Tensor]:
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    return [_part(x, dim, end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _at(x: Tensor, dim: int, index: int) -> Tensor:
    dim, index = dim % x.dim(), index % x.shape[dim]
    return _aten.squeeze.dim(_part(x, dim, index, index + 1), dim)


# Apart


@decomposes("aten.select.int")
def decompose_select(self: Tensor, dim: int, index: int) -> Tensor:
    return _at(self, dim, index)


@decomposes("aten.narrow.default")
def narrow(self: Tensor, dim: int, start: int, length: int) -> Tensor:
    dim = dim % self.dim()
    start = start % self.shape[dim] if start < 0 else start
    return _part(self, dim, start, start + length)


@decomposes("aten.split.Tensor")
def split(self: Tensor, split_size: int, dim: int) -> list[Tensor] | Keep:
    extent = self.shape[dim]
    if not extent or not split_size:
        return KEPT
    return _parts(self, dim, [min(split_size, extent - start) for start in range(0, extent, split_size)])


@decomposes("aten.split_with_sizes.default")
def split_with_sizes(self: Tensor, split_sizes: Sequence[int], dim: int) -> list[Tensor]:
    return _parts(self, dim, split_sizes)


@decomposes("aten.unbind.int")
def unbind(self: Tensor, dim: int) -> list[Tensor]:
    return [_at(self, dim, index) for index in range(self.shape[dim])]


# Together


@decomposes("aten.stack.default")
def stack(tensors: Sequence[Tensor], dim: int) -> Tensor:
    dim = dim % (tensors[0].dim() + 1)
    return _aten.cat.default([_aten.unsqueeze.default(tensor, dim) for tensor in tensors], dim)


@decomposes("aten.roll.default")
def roll(self: Tensor, shifts: Sequence[int], dims: Sequence[int]) -> Tensor:
    if not dims:
        return _rolled(self.reshape(-1), shifts[0], 0).reshape(self.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        self = _rolled(self, shift, dim)
    return self


def _rolled(x: Tensor, shift: int, dim: int) -> Tensor:
    extent = x.shape[dim]
    shift = shift % extent if extent else 0
    if not shift:
        return x
    last = _aten.slice.Tensor(x, dim, extent - shift, extent)
    return _aten.cat.default([last, _aten.slice.Tensor(x, dim, 0, extent - shift)], dim)


# Turned


@decomposes("aten.rot90.default")
def rot90(self: Tensor, k: int, dims: Sequence[int]) -> Tensor:
    first, second = dims
    turns = k % 4
    if turns == 2:
        return _aten.flip.default(self, [first, second])
    if turns == 1:
        return _aten.flip.default(self, [second]).transpose(first, second)
    return _aten.flip.default(self.transpose(first, second), [second]) if turns else self


# Repeated


@decomposes("aten.repeat_interleave.self_int")
def repeat_interleave(self: Tensor, repeats: int, dim: int | None, **_: object) -> Tensor:
    if dim is None:
        self, dim = self.reshape(-1), 0
    dim = dim % self.dim()
    before, after = list(self.shape[:dim]), list(self.shape[dim + 1 :])
    each = _aten.expand.default(self.unsqueeze(dim + 1), [*before, self.shape[dim], repeats, *after])
    return each.reshape([*before, self.shape[dim] * repeats, *after])


@decomposes("aten.diff.default")
def diff(self: Tensor, n: int, dim: int, prepend: Tensor | None, append: Tensor | None) -> Tensor:
    if n == 0:
        return self.clone()  # PyTorch ignores prepend and append then
    around = [tensor for tensor in (prepend, self, append) if tensor is not None]
    self = _aten.cat.default(around, dim) if len(around) > 1 else self
    for _ in range(n):
        extent = self.shape[dim]
        self = _aten.slice.Tensor(self, dim, 1, extent) - _aten.slice.Tensor(self, dim, 0, extent - 1)
    return self


@decomposes("aten.diagonal.default")
def diagonal(self: Tensor, offset: int, dim1: int, dim2: int) -> Tensor | Keep:
    """Return diagonals as every (columns + 1)-th value of matrices whose rows are concatenated; KEPT for empty diagonals."""
    first, second = dim1 % self.dim(), dim2 % self.dim()
    others = [dim for dim in range(self.dim()) if dim not in (first, second)]
    rows, columns = self.shape[first], self.shape[second]
    count = min(rows + min(offset, 0), columns - max(offset, 0))
    if count < 1:
        return KEPT
    start = offset if offset >= 0 else -offset * columns
    flat = self.permute(*others, first, second).reshape(*(self.shape[dim] for dim in others), rows * columns)
    return _aten.slice.Tensor(flat, -1, start, start + (count - 1) * (columns + 1) + 1, columns + 1)


def _moved(node: Node, context: Context, value: Value) -> Value:
    """Return the value in the quantization of the node's result. Integers and booleans are returned unchanged."""
    if context.dtype(value) not in ACTIVATIONS:
        return value
    return context.requantized(value, context.results.quant(node), f"{node.name}_requantized")


@lowers(
    "aten.alias_copy.default",
    "aten.alias.default",
    "aten.clone.default",
    "aten.contiguous.default",
    "aten.detach.default",
    "aten.detach_copy.default",
    "aten.dropout.default",
    "aten.feature_dropout.default",
    "aten.lift_fresh_copy.default",
    "dim_order_ops._clone_dim_order.default",
    moves=True,
    renames=True,
)
def nothing(node: Node, context: Context) -> Value | Reject:
    if arguments_of(node).get("train"):
        return DROPS
    return _moved(node, context, context.value(node.args[0]))


@lowers(
    "aten._to_copy.default",
    "aten.to.dtype",
    "dim_order_ops._to_dim_order_copy.default",
    moves=True,
    renames=True,
    emits=(
        "lookup",
        "concatenation",
        "slice",
        "cast",
        "bitcast",
        "equal",
        "not_equal",
        "select_v2",
        "reduce_any",
        "reduce_all",
    ),
)
def copy(node: Node, context: Context) -> Value | Reject:
    source = node.args[0]
    if is_truth(source) and node.meta["val"].dtype == torch.float32:
        return truths_as_numbers(node, context, context.value(source))
    if isinstance(source, Node) and is_number(source) and node.meta["val"].dtype == torch.float32:
        return context.value(source)
    if isinstance(source, Node) and source.meta["val"].dtype != node.meta["val"].dtype:
        value = context.value(source)
        if node.meta["val"].dtype == torch.bool and context.dtype(value) in INTEGERS:
            return of_integers(node, context, value, 0, "not_equal")
        if node.meta["val"].dtype == torch.float32 and context.dtype(value) in INTEGERS:
            return numbers_of_integers(node, context, value)
        if node.meta["val"].dtype in (torch.int32, torch.int64) and context.dtype(value) is DType.INT8:
            return integers_of_numbers(node, context, value)
        return Reject(f"it converts {source.meta['val'].dtype} to {node.meta['val'].dtype}")
    return _moved(node, context, context.value(source))


@lowers("aten.as_strided.default", "aten.as_strided_copy.default", moves=True, renames=True)
def as_strided(node: Node, context: Context) -> Value | Reject:
    """Return the input if the call's sizes and strides are the input's own, as in adaptive pools to 1x1 of channels-last images.

    Reject other calls.
    """
    given = arguments_of(node)
    source = node.args[0].meta["val"]
    told = [(extent, stride) for extent, stride in zip(given["size"], given["stride"], strict=True) if extent != 1]
    lies = [(extent, stride) for extent, stride in zip(source.shape, source.stride(), strict=True) if extent != 1]
    if tuple(given["size"]) != tuple(source.shape) or told != lies or given["storage_offset"]:
        return Reject("it reads its input's memory in another order")
    return _moved(node, context, context.value(node.args[0]))


_APART = (
    "aten.split.Tensor",
    "aten.split_copy.Tensor",
    "aten.split_with_sizes.default",
    "aten.split_with_sizes_copy.default",
    "aten.unbind.int",
    "aten.unbind_copy.int",
)


@lowers(*_APART, moves=True)
def apart(node: Node, context: Context) -> Value | Reject:
    """Return the whole tensor. The getitem nodes that follow slice their parts from it."""
    return context.value(node.args[0])


@lowers(GETITEM, emits=("slice",), moves=True)
def one_result(node: Node, context: Context) -> Value | Reject:
    source, place = node.args
    assert isinstance(source, Node) and isinstance(place, int)
    value = context.value(source)
    if op_name(source) in _APART:
        before = arguments_of(source)
        pieces = source.meta["val"]
        dim = before["dim"] % len(value.shape)
        single = op_name(source).startswith("aten.unbind")
        sizes = [1 if single else int(piece.shape[dim]) for piece in pieces]
        begin = sum(sizes[:place])
        value = context.viewed(_sliced(node, context, value, dim, begin, begin + sizes[place], 1), shape_of(node))
    elif place != 0:
        return Reject("it is not the operator's first result")
    return _moved(node, context, value)


@lowers(
    "aten._unsafe_view.default",
    "aten.flatten.using_ints",
    "aten.reshape.default",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.squeeze_copy.default",
    "aten.squeeze_copy.dim",
    "aten.squeeze_copy.dims",
    "aten.unsqueeze.default",
    "aten.unsqueeze_copy.default",
    "aten.view.default",
    "aten.view_copy.default",
    moves=True,
    renames=True,
    layout=Layout.OWN,
)
def view(node: Node, context: Context) -> Value | Reject:
    return _moved(node, context, context.viewed(context.value(node.args[0]), shape_of(node)))


@lowers(
    "aten.permute.default",
    "aten.permute_copy.default",
    "aten.t.default",
    "aten.t_copy.default",
    "aten.transpose.int",
    "aten.transpose_copy.int",
    moves=True,
    layout=Layout.OWN,
)
def permute(node: Node, context: Context) -> Value | Reject:
    given, dims = arguments_of(node), list(range(len(shape_of(node))))
    if "dims" in given:
        dims = [dim % len(dims) for dim in given["dims"]]
    elif dims:
        first, second = given.get("dim0", 0), given.get("dim1", -1)
        dims[first], dims[second] = dims[second], dims[first]
    value = context.settled(context.value(node.args[0]))
    return _moved(node, context, permuted(value, tuple(dims)))


@lowers("aten.slice.Tensor", "aten.slice_copy.Tensor", moves=True, emits=("slice", "strided_slice"))
def slice_of(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    value = context.value(given["self"])
    dim = given["dim"] % len(value.shape)
    start, end = (
        _inside(given[key], value.shape[dim], absent) for key, absent in (("start", 0), ("end", value.shape[dim]))
    )
    return _moved(node, context, _sliced(node, context, value, dim, start, end, given["step"]))


@lowers("aten.select.int", "aten.select_copy.int", moves=True, emits=("slice", "strided_slice"))
def select(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    value = context.value(given["self"])
    dim = given["dim"] % len(value.shape)
    index = given["index"] % value.shape[dim]
    part = _sliced(node, context, value, dim, index, index + 1, 1)
    return _moved(node, context, context.viewed(part, shape_of(node)))


def _inside(place: int | None, extent: int, absent: int) -> int:
    """Return the begin or end of a slice as a position from 0 to the extent; ``absent`` if it is None."""
    if place is None:
        return absent
    return min(max(place + extent if place < 0 else place, 0), extent)


def _sliced(node: Node, context: Context, value: Value, dim: int, start: int, end: int, step: int) -> Value:
    """Return the positions start, start + step … below end of a dimension, by a SLICE, or a STRIDED_SLICE for steps above 1."""
    if (start, end, step) == (0, value.shape[dim], 1):
        return value
    value = context.settled(value)
    here, place = context.tensors[value.tensor], value.order.index(dim)
    end = min(end, start + ((end - start - 1) // step * step + 1))
    shape = (*value.shape[:dim], len(range(start, end, step)), *value.shape[dim + 1 :])
    stored = value.stored
    if len(stored) > _SLICED_AXES:
        # LiteRT slices fewer axes: the axes before are joined to one, and so are those after.
        stored = (math.prod(stored[:place]), stored[place], math.prod(stored[place + 1 :]))
        place = 1
    source = context.reshaped(value.tensor, stored)
    begins, ends = [0] * len(stored), list(stored)
    begins[place], ends[place] = start, end
    taken = tuple(
        -(-(last - first) // (step if axis == place else 1))
        for axis, (first, last) in enumerate(zip(begins, ends, strict=True))
    )
    begin = context.add_integers(f"{node.name}_begin", begins)
    if step == 1:
        size = context.add_integers(f"{node.name}_size", taken)
        name = context.emit("slice", (source, begin, size), taken, here.quant, node.name, here.dtype)
    else:
        last = context.add_integers(f"{node.name}_end", ends)
        steps = context.add_integers(
            f"{node.name}_steps", [step if axis == place else 1 for axis in range(len(stored))]
        )
        name = context.emit("strided_slice", (source, begin, last, steps), taken, here.quant, node.name, here.dtype)
    result = tuple(shape[axis] for axis in value.order)
    return Value(context.reshaped(name, result), shape, value.order, shape)


_SLICED_AXES = 5
"""The limit on axes in LiteRT's SLICE and STRIDED_SLICE."""


@lowers("aten.flip.default", moves=True, emits=("reverse_v2",))
def flip(node: Node, context: Context) -> Value | Reject:
    value = context.settled(context.value(node.args[0]))
    dims = {dim % len(value.shape) for dim in arguments_of(node)["dims"]}
    turned = [place for place, axis in enumerate(value.order) if axis in dims and value.shape[axis] > 1]

    def emit(tensor: str, places: list[int]) -> str:
        axes = context.add_integers(f"{node.name}_axes", places)
        here = context.tensors[tensor].shape
        return context.emit("reverse_v2", (tensor, axes), here, context.quant(value), node.name)

    name = value.tensor
    # LiteRT reverses neighbouring axes only, and the kernel reverses at most two in one call.
    while turned:
        places = turned[: 2 if turned[1:2] == [turned[0] + 1] else 1]
        name, turned = emit(name, places), turned[len(places) :]
    return _moved(node, context, Value(name, value.shape, value.order, value.shape))


@lowers("aten.expand.default", "aten.expand_copy.default", "aten.repeat.default", moves=True, emits=("tile",))
def repeat(node: Node, context: Context) -> Value | Reject:
    shape = shape_of(node)
    value = context.value(node.args[0])
    value = context.settled(context.viewed(value, (1,) * (len(shape) - len(value.shape)) + value.shape))
    here, name = context.tensors[value.tensor], value.tensor
    wanted = tuple(shape[axis] for axis in value.order)
    for outer, extent, count, inner in _repeats(value.stored, wanted):
        source = context.reshaped(name, (outer, extent, inner))
        counts = context.add_integers(f"{node.name}_counts", (1, count, 1))
        name = context.emit("tile", (source, counts), (outer, extent * count, inner), here.quant, node.name, here.dtype)
    return _moved(node, context, Value(context.reshaped(name, wanted), shape, value.order, shape))


def _repeats(shape: Shape, wanted: Shape) -> list[tuple[int, int, int, int]]:
    """Return the repeats that turn ``shape`` into ``wanted``, each as (elements before, extent, number of repeats,
    elements after). Neighbouring axes of extent 1 are repeated as one axis.

    The innermost axis comes first, so that the later repeats copy long lines.
    """
    runs: list[tuple[int, int, int, int]] = []
    here = list(shape)
    axis = len(shape) - 1
    while axis >= 0:
        first = axis
        # Neighbouring axes of extent 1 count as one such axis.
        while shape[axis] == 1 and first and shape[first - 1] == 1:
            first -= 1
        extent, result = math.prod(here[first : axis + 1]), math.prod(wanted[first : axis + 1])
        if result != extent:
            runs.append((math.prod(here[:first]), extent, result // extent, math.prod(here[axis + 1 :])))
            here[first : axis + 1] = wanted[first : axis + 1]
        axis = first - 1
    return runs


@lowers("aten.cat.default", moves=True, emits=("concatenation",))
def cat(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    shape, quant = shape_of(node), context.results.quant(node)
    # PyTorch ignores an empty tensor of any shape in the list.
    values = [context.value(item) for item in given["tensors"] if item.meta["val"].numel()]
    if not values:
        return Reject("all its inputs are empty")
    values = [context.settled(value) for value in values]
    orders = [value.order for value in values if not context.tensors[value.tensor].is_constant] or [values[0].order]
    plain = tuple(range(len(shape)))
    order = next((each for each in orders if each != plain), plain)
    names = [
        context.arranged(context.requantized(value, quant, f"{value.tensor}_for_{node.name}"), order)
        for value in values
    ]
    dim = given["dim"] % len(shape)
    stored = tuple(shape[axis] for axis in order)
    if len(names) == 1:
        return Value(names[0], shape, order, shape)
    name = context.emit("concatenation", names, stored, quant, node.name, axis=order.index(dim))
    return Value(name, shape, order, shape)
