# SPDX-License-Identifier: BSD-3-Clause
"""Operators that take or write values at indices, and embedding bags.

A write is a gather and a selection: each index becomes a row of a one-hot matrix. An embedding bag is a product: a matrix assigns
embeddings to bags.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx import Node

from openneutron.ir import DType
from openneutron.pytorch.graph.program import Reject, Rejected, arguments_of, shape_of
from openneutron.pytorch.operators.pooling import MOST_PIECES
from openneutron.pytorch.operators.rules.context import Context, Shape, Value, take
from openneutron.pytorch.operators.rules.tables import KEPT, Keep, Layout, decomposes, lowers

_aten = torch.ops.aten

MOST_ONE_HOT = 1 << 18
"""The limit on elements of a one-hot matrix, each a byte of the arena; a number of our own choice."""


@decomposes("aten.index_put.default")
def index_put(self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Tensor | Keep:
    """Write values at indices. Of several values at one position the last is kept, or with ``accumulate`` all are
    added."""
    if not self.is_floating_point() or values.dtype != self.dtype:
        return KEPT
    given = {dim: index for dim, index in enumerate(indices) if index is not None}
    if any(index.dtype == torch.bool for index in given.values()):
        return _masked(self, given, values, accumulate) if len(given) == 1 else KEPT
    if len(given) == 1 and next(iter(given.values())).numel() == 1 and not accumulate:
        return _put_once(self, *next(iter(given.items())), values)
    rows = math.prod(torch.broadcast_shapes(*(index.shape for index in given.values())))
    places = math.prod(self.shape[dim] for dim in given)
    if not rows or not self.numel() or rows * places > MOST_ONE_HOT:
        return KEPT
    order = [*given, *(dim for dim in range(self.dim()) if dim not in given)]
    table = _aten.permute.default(self, order).reshape(places, -1)
    put = _put(table, _one_hot(self, given, rows), _as_rows(self, given, values, rows), accumulate)
    back = [order.index(dim) for dim in range(self.dim())]
    return _aten.permute.default(put.reshape([self.shape[dim] for dim in order]), back)


@decomposes("aten.copy.default")
def copy(self: Tensor, src: Tensor, non_blocking: bool) -> Tensor | Keep:
    """Return the values that are written over the whole of a tensor, in the tensor's shape."""
    del non_blocking
    if src.dtype != self.dtype:
        src = _aten._to_copy.default(src, dtype=self.dtype)
    return src if src.shape == self.shape else _aten.expand.default(src, self.shape)


@decomposes("aten.scatter.src")
def scatter(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor | Keep:
    return _scattered(self, dim, index, src, False)


@decomposes("aten.scatter.value")
def scatter_value(self: Tensor, dim: int, index: Tensor, value: float) -> Tensor | Keep:
    return _scattered(self, dim, index, torch.full(index.shape, value, dtype=self.dtype), False)


@decomposes("aten.scatter_add.default")
def scatter_add(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor | Keep:
    return _scattered(self, dim, index, src, True)


def _scattered(x: Tensor, dim: int, index: Tensor, values: Tensor, accumulate: bool) -> Tensor | Keep:
    """Write values along a dimension, as ``scatter`` does: each line along this dimension has its own indices.

    Return KEPT for integers, if there are no indices, if the input and the indices differ in the extent of another
    dimension, or if the one-hot matrix has more than ``MOST_ONE_HOT`` elements.
    """
    if not x.is_floating_point() or values.dtype != x.dtype or not x.dim() or not index.numel():
        return KEPT
    dim = dim % x.dim()
    if any(index.shape[other] != extent for other, extent in enumerate(x.shape) if other != dim):
        return KEPT
    if index.numel() * x.shape[dim] > MOST_ONE_HOT:
        return KEPT
    if values.shape != index.shape:
        for other, extent in enumerate(index.shape):
            values = _aten.slice.Tensor(values, other, 0, extent)
    order = [*(other for other in range(x.dim()) if other != dim), dim]
    lines, places, given = (
        _aten.permute.default(tensor, order).reshape(-1, tensor.shape[dim]) for tensor in (x, index, values)
    )
    hot = _aten.index.Tensor(torch.eye(lines.shape[1], dtype=x.dtype), [places])
    if accumulate:
        put = lines + _aten.matmul.default(given.unsqueeze(1), hot).squeeze(1)
    else:
        taken = given
        if given.shape[1] > 1:
            last = _aten.argmax.default(_aten.flip.default(hot, [1]), 1)
            taken = _aten.gather.default(_aten.flip.default(given, [1]), 1, last)
        put = _aten.where.self(_aten.gt.Scalar(_aten.amax.default(hot, [1]), 0.5), taken, lines)
    back = [order.index(other) for other in range(x.dim())]
    return _aten.permute.default(put.reshape([x.shape[other] for other in order]), back)


@decomposes("aten.select_scatter.default")
def select_scatter(self: Tensor, src: Tensor, dim: int, index: int) -> Tensor | Keep:
    dim = dim % self.dim()
    return slice_scatter(self, src.unsqueeze(dim), dim, index % self.shape[dim], index % self.shape[dim] + 1, 1)


@decomposes("aten.slice_scatter.default")
def slice_scatter(self: Tensor, src: Tensor, dim: int, start: int | None, end: int | None, step: int) -> Tensor | Keep:
    """Return ``self`` with ``src`` in the place of a slice, as a concatenation of the parts of both.

    Return KEPT if a step above 1 needs more than ``MOST_PIECES`` slices of ``src``.
    """
    dim = dim % self.dim()
    extent = self.shape[dim]
    parts, done = [], 0
    places = range(extent)[slice(start, end, step)]
    runs = [(places.start, places.stop)] if step == 1 else [(place, place + 1) for place in places]
    if len(runs) > MOST_PIECES:
        return KEPT
    taken = 0
    for first, last in (run for run in runs if run[1] > run[0]):
        if first > done:
            parts.append(_aten.slice.Tensor(self, dim, done, first))
        parts.append(src if len(runs) == 1 else _aten.slice.Tensor(src, dim, taken, taken + last - first))
        taken, done = taken + last - first, last
    if done < extent:
        parts.append(_aten.slice.Tensor(self, dim, done, extent))
    return parts[0] if len(parts) == 1 else _aten.cat.default(parts, dim)


def _put_once(x: Tensor, dim: int, index: Tensor, values: Tensor) -> Tensor | Keep:
    """Write values at one index of one dimension, as into a key cache, without a permutation of dimensions."""
    extent = x.shape[dim]
    if extent * extent > MOST_ONE_HOT:
        return KEPT
    is_put = _aten.index.Tensor(torch.eye(extent, dtype=torch.bool), [index.reshape(-1)])
    # The dimensions of the index, all of extent 1, replace the dimension that it indexes.
    behind = x.dim() - dim - 1
    shape = [*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]]
    if values.dim() < len(shape):
        values = values.reshape([1] * (len(shape) - values.dim()) + list(values.shape))
    lead, trail = values.shape[:dim], values.shape[len(shape) - behind :]
    return _aten.where.self(is_put.reshape([1] * dim + [extent] + [1] * behind), values.reshape([*lead, 1, *trail]), x)


def _masked(x: Tensor, given: dict[int, Tensor], values: Tensor, accumulate: bool) -> Tensor | Keep:
    """Write values where a mask is true.

    Return KEPT if the values differ between positions: which position gets which value depends on the mask.
    """
    ((dim, mask),) = given.items()
    behind = x.dim() - dim - mask.dim()
    if values.dim() > behind and any(extent != 1 for extent in values.shape[: values.dim() - behind]):
        return KEPT
    if values.dim() > behind:
        values = values.reshape(values.shape[values.dim() - behind :])
    condition = mask.reshape(*mask.shape, *[1] * behind)
    return _aten.where.self(condition, x + values if accumulate else values, x)


def _one_hot(x: Tensor, given: dict[int, Tensor], rows: int) -> Tensor:
    """Return [rows, places]: 1.0 at the place that a row's indices name, 0.0 elsewhere. Negative indices count from the
    end."""
    shape = torch.broadcast_shapes(*(index.shape for index in given.values()))
    hot: Tensor | None = None
    for dim, index in given.items():
        extent = x.shape[dim]
        flat = index.reshape(-1) if index.numel() in (1, rows) else index.expand(shape).reshape(-1)
        one = _aten.index.Tensor(torch.eye(extent, dtype=x.dtype), [flat])
        if hot is None:
            hot = one
        else:
            both = _aten.minimum.default(hot.unsqueeze(2), one.unsqueeze(1))
            hot = both.reshape(both.shape[0], -1)
    assert hot is not None
    return hot if hot.shape[0] == rows else _aten.expand.default(hot, [rows, hot.shape[1]])


def _as_rows(x: Tensor, given: dict[int, Tensor], values: Tensor, rows: int) -> Tensor:
    """Return [rows, elements of x at a place]: the values that each row of indices writes."""
    shape = list(torch.broadcast_shapes(*(index.shape for index in given.values())))
    dims = list(given)
    rest = [extent for dim, extent in enumerate(x.shape) if dim not in given]
    # Where the indexed dimensions are neighbours, the indices' dimensions replace them; else they come first.
    place = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    whole = [*rest[:place], *shape, *rest[place:]]
    if list(values.shape) != whole:
        values = _aten.expand.default(values, whole)
    if place and shape:
        named = range(place, place + len(shape))
        values = _aten.permute.default(values, [*named, *(dim for dim in range(len(whole)) if dim not in named)])
    return values.reshape(rows, -1)


def _put(table: Tensor, hot: Tensor, values: Tensor, accumulate: bool) -> Tensor:
    """Write values [rows, elements] to the table [places, elements] at the places of the one-hot rows [rows,
    places]."""
    if accumulate:
        return table + _aten.matmul.default(_aten.permute.default(hot, [1, 0]), values)
    is_put = _aten.gt.Scalar(_aten.amax.default(hot, [0]), 0.5).unsqueeze(1)
    if values.shape[0] > 1:
        last = _aten.argmax.default(_aten.flip.default(hot, [0]), 0)
        values = _aten.index.Tensor(_aten.flip.default(values, [0]), [last])
    return _aten.where.self(is_put, values, table)


SUM, MEAN, MAX = 0, 1, 2
"""The modes of ``aten.embedding_bag``."""

MOST_TAKEN = 512
"""The limit on the embeddings of all bags of a call. A table with this many rows and columns marks the embeddings at or after each
offset."""


@decomposes("aten.embedding_bag.padding_idx", "aten.embedding_bag.default")
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int | None = None,
) -> tuple[Tensor, None, None, None] | Keep:
    """Return the bags only; the operator's other results serve its gradient. An empty bag is zeros."""
    del scale_grad_by_freq, sparse
    taken = indices.numel()
    bags = offsets.numel() - include_last_offset
    if padding_idx is not None or not 0 < taken <= MOST_TAKEN or bags < 1 or indices.dim() != 1:
        return KEPT
    rows = _aten.embedding.default(weight, indices)
    # Row o of the table marks the embeddings at offset o and after it.
    table = torch.ones(taken, taken + 1, dtype=weight.dtype).tril().t()
    behind = _aten.index.Tensor(table, [offsets])
    inside = _aten.slice.Tensor(behind, 0, 0, bags)
    if offsets.numel() > 1:
        following = _aten.slice.Tensor(behind, 0, 1, offsets.numel())
        if not include_last_offset:
            following = _aten.constant_pad_nd.default(following, [0, 0, 0, 1], 0.0)
        inside = inside - following
    if mode == MAX:
        return _largest(rows, inside), None, None, None
    if per_sample_weights is not None:
        inside = inside * per_sample_weights
    elif mode == MEAN:
        inside = inside / _aten.clamp.default(inside.sum(1, keepdim=True), 1.0)
    return _aten.matmul.default(inside, rows), None, None, None


def _largest(rows: Tensor, inside: Tensor) -> Tensor:
    """Return the maximum over each bag's rows; rows of other bags are replaced by the smallest value."""
    belongs = _aten.gt.Scalar(inside, 0.5)
    candidates = _aten.where.self(belongs.unsqueeze(2), rows.unsqueeze(0), _aten.amin.default(rows, [0], True))
    filled = _aten.gt.Scalar(_aten.amax.default(inside, [1], True), 0.5)
    return _aten.where.self(filled, _aten.amax.default(candidates, [1]), torch.zeros((), dtype=rows.dtype))


@lowers("aten.embedding.default", moves=True, layout=Layout.OWN, emits=("slice", "gather"))
def embedding(node: Node, context: Context) -> Value | Reject:
    """Lower to a GATHER of rows. An index without a row ends the run with an error."""
    given = arguments_of(node)
    return _taken(node, context, context.value(given["weight"]), 0, given["indices"])


@lowers("aten.index_select.default", moves=True, emits=("slice", "gather"))
def index_select(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    data = context.value(given["self"])
    if not data.shape:
        return Reject("its input is a single number")
    return _taken(node, context, data, given["dim"] % len(data.shape), given["index"])


@lowers("aten.index.Tensor", moves=True, layout=Layout.OWN, emits=("slice", "gather"))
def index(node: Node, context: Context) -> Value | Reject:
    """Lower indexing by tensors to GATHER. Several index tensors must be for neighbouring dimensions, and all but the
    last must be constant. Constant indices below 0 count from the end.

    If the last index tensor is computed, the constant ones must each be a single position. Another allowed form is ``x[arange(rows), i]``: two
    index tensors for the first two dimensions, of which the first names all rows in order.
    """
    given = arguments_of(node)
    places = [place for place, item in enumerate(given["indices"]) if item is not None]
    if len(places) == 1:
        return _taken(node, context, context.value(given["self"]), places[0], given["indices"][places[0]])
    if not places or places != list(range(places[0], places[-1] + 1)):
        return Reject(
            f"it has {len(places)} index tensors, with dimensions between them", "Index one dimension after the other."
        )
    return _taken_by_several(node, context, places, [given["indices"][place] for place in places])


def _taken_by_several(node: Node, context: Context, places: list[int], which: Sequence[Any]) -> Value | Reject:
    data, shape = context.settled(context.value(node.args[0])), shape_of(node)
    first, extents = places[0], [data.shape[place] for place in places]
    if context.tensors[data.tensor].quant is None:
        return Reject(f"it has {len(places)} index tensors, and its input is {context.dtype(data)}")
    indices = [_indices(context, item, extent) for item, extent in zip(which, extents, strict=True)]
    held = [context.tensors[item.tensor].data for item in indices]
    known = [item for item in held if item is not None]
    rank = len(shape) - (len(data.shape) - len(places))
    taken = shape[first : first + rank]
    source = context.arranged(data, tuple(range(len(data.shape))))
    plain_order = tuple(range(len(shape)))
    if len(known) == len(held):
        flat = np.ravel_multi_index(tuple(np.broadcast_arrays(*known)), tuple(extents)).astype(np.int32)
        merged = (*data.shape[:first], math.prod(extents), *data.shape[places[-1] + 1 :])
        operands = (context.reshaped(source, merged), context.add_constant(f"{node.name}_positions", flat))
        return _gathered(node, context, data, operands, first, 0, plain_order)
    last = indices[-1]
    if held[-1] is not None or len(known) < len(held) - 1:
        return Reject(
            f"{len(held) - len(known)} of its {len(held)} index tensors are computed; the last one alone may be",
            "Index one dimension after the other.",
        )
    if math.prod(last.shape) != math.prod(taken):
        return Reject(f"its computed indices are {list(last.shape)} and broadcast to {list(taken)}")
    if any(item.size > 1 and not any(item.strides) for item in known):
        return Reject("the values of its constant index tensors are not known")
    if all((item == item.reshape(-1)[:1]).all() for item in known):
        for place, item in zip(places, known, strict=False):
            source = take(context, source, place, [int(item.reshape(-1)[0])], f"{node.name}_{place}")
        source = context.reshaped(source, (*data.shape[:first], *data.shape[places[-1] :]))
        operands = (source, context.arranged(context.viewed(last, taken), tuple(range(rank))))
        return _gathered(node, context, data, operands, first, 0, plain_order)
    rows = np.broadcast_to(known[0], taken).reshape(len(taken) and taken[0], -1)
    if places != [0, 1] or rows.shape[0] != extents[0] or (rows != np.arange(extents[0])[:, None]).any():
        return Reject(
            "its first index tensors are neither one position nor all rows in order",
            "Index one dimension after the other.",
        )
    # Each row has its own index: rows are GATHER's batches.
    operands = (source, context.arranged(context.viewed(last, taken), tuple(range(rank))))
    return _gathered(node, context, data, operands, 1, 1, plain_order)


@lowers("aten.gather.default", moves=True, layout=Layout.OWN, emits=("gather",))
def gather(node: Node, context: Context) -> Value | Reject:
    """Lower to a GATHER along the last axis, with all other dimensions as batches: each batch of LiteRT's GATHER has its own indices."""
    given = arguments_of(node)
    data = context.settled(context.value(given["self"]))
    if not data.shape:
        return Reject("its input is a single number")
    dim, shape = given["dim"] % len(data.shape), shape_of(node)
    short = [axis for axis, extent in enumerate(shape) if axis != dim and extent != data.shape[axis]]
    if short:
        axis = short[0]
        return Reject(
            f"its indices have {shape[axis]} positions along dimension {axis}, its input {data.shape[axis]}; "
            "they must be as many"
        )
    indices = _indices(context, given["index"], data.shape[dim])
    order = (*(axis for axis in range(len(shape)) if axis != dim), dim)
    source, taken = context.arranged(data, order), context.arranged(indices, order)
    return _gathered(node, context, data, (source, taken), len(shape) - 1, len(shape) - 1, order)


def _taken(node: Node, context: Context, data: Value, dim: int, which: Any) -> Value:
    data, shape = context.settled(data), shape_of(node)
    indices = _indices(context, which, data.shape[dim])
    plain_order = tuple(range(len(indices.shape)))
    place = data.order.index(dim)
    if len(indices.shape) == 1 or (not indices.shape and len(shape) == len(data.shape)):
        # An order of the input's axes is one of the result's too.
        source, order = data.tensor, data.order
    else:
        source, place, order = context.arranged(data, tuple(range(len(data.shape)))), dim, tuple(range(len(shape)))
    if len(shape) == len(data.shape) and not indices.shape:
        indices, plain_order = context.viewed(indices, (1,)), (0,)
    operands = (source, context.arranged(indices, plain_order))
    return _gathered(node, context, data, operands, place, 0, order)


def _gathered(
    node: Node, context: Context, data: Value, operands: tuple[str, str], axis: int, batch_dims: int, order: Shape
) -> Value:
    """Add the GATHER of a table of activations, or of integers and booleans, which have no quantization."""
    shape, table = shape_of(node), context.tensors[data.tensor]
    stored = tuple(shape[dim] for dim in order)
    name = context.emit(
        "gather", operands, stored, table.quant, node.name, table.dtype, axis=axis, batch_dims=batch_dims
    )
    result = Value(name, shape, order, shape)
    if table.quant is None:
        return result
    return context.requantized(result, context.results.quant(node), f"{node.name}_requantized")


def _indices(context: Context, node: Any, extent: int) -> Value:
    """Return the value of the indices, in which constant indices below 0 are replaced by positions from the start.

    Raises Rejected unless the indices are int32 or int64.
    """
    value = context.value(node)
    here = context.tensors[value.tensor]
    if here.dtype not in (DType.INT32, DType.INT64):
        kind = "a mask" if here.dtype is DType.BOOL else str(here.dtype)
        hint = "torch.where keeps the shape." if here.dtype is DType.BOOL else ""
        raise Rejected(f"its indices '{here.name}' are {kind}; int32 and int64 is what there is", hint)
    if here.data is None or math.prod(here.shape) == 0:
        return value
    wrapped = np.where(here.data < 0, here.data + extent, here.data).astype(here.data.dtype)
    if (wrapped == here.data).all():
        return value
    return Value(context.add_constant(f"{here.name}_from_0", wrapped), value.shape, value.order, value.base)
