# SPDX-License-Identifier: BSD-3-Clause
"""Operators that take values by indices, given or constant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch.fx import Node

from openneutron.ir import DType
from openneutron.pytorch.graph.program import Reject, Rejected, arguments_of, shape_of
from openneutron.pytorch.operators.rules.context import Context, take
from openneutron.pytorch.operators.rules.results import Shape, Value
from openneutron.pytorch.operators.rules.tables import Layout, lowers


@lowers("aten.embedding.default", moves=True, layout=Layout.OWN)
def embedding(node: Node, context: Context) -> Value | Reject:
    """An index that names no row ends the run with an error."""
    given = arguments_of(node)
    return _taken(node, context, context.value(given["weight"]), 0, given["indices"])


@lowers("aten.index_select.default", moves=True)
def index_select(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    data = context.value(given["self"])
    if not data.shape:
        return Reject("its input is a single number")
    return _taken(node, context, data, given["dim"] % len(data.shape), given["index"])


@lowers("aten.index.Tensor", moves=True, layout=Layout.OWN)
def index(node: Node, context: Context) -> Value | Reject:
    """Indices below 0 count from the end. Of several index tensors, for neighbouring dimensions, all but the last are constant."""
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


@lowers("aten.gather.default", moves=True, layout=Layout.OWN)
def gather(node: Node, context: Context) -> Value | Reject:
    """LiteRT's GATHER takes indices of its own for each batch: the dimension goes last, all others are batches."""
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
    return context.requantized(result, context.result_quant(node), f"{node.name}_requantized")


def _indices(context: Context, node: Any, extent: int) -> Value:
    """Return the indices' value; constant ones not below 0. Rejects what is no integer, and constant ones that name
    nothing."""
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
