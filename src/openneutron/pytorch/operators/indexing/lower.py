# SPDX-License-Identifier: BSD-3-Clause
"""Operators that take values by indices, given or constant."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch.fx import Node

from openneutron.ir import DType
from openneutron.pytorch.graph.program import Reject, Rejected, arguments_of, shape_of
from openneutron.pytorch.operators.rules.context import Context
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
    """Return one list of indices, for one dimension; those below 0 count from the end."""
    given = arguments_of(node)
    places = [place for place, item in enumerate(given["indices"]) if item is not None]
    if len(places) != 1:
        return Reject(f"it has {len(places)} index tensors; 1 is what there is", "Index one dimension after the other.")
    return _taken(node, context, context.value(given["self"]), places[0], given["indices"][places[0]])


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
