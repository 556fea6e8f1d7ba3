# SPDX-License-Identifier: BSD-3-Clause
"""Means, sums and extrema over dimensions, and the larger or smaller of two tensors."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch.fx import Node

from openneutron.ir import QuantParams, per_tensor
from openneutron.pytorch.graph.program import Reject, arguments_of, op_name, shape_of
from openneutron.pytorch.operators.rules.context import Context, broadcasting
from openneutron.pytorch.operators.rules.results import Shape, Value
from openneutron.pytorch.operators.rules.tables import Layout, lowers


@lowers("aten.mean.default", "aten.mean.dim", layout=Layout.OWN)
def mean(node: Node, context: Context) -> Value | Reject:
    data, dims, kept = _reduced(node, context)
    return context.viewed(mean_over(node, context, data, dims, kept), shape_of(node))


@lowers("aten.sum.default", "aten.sum.dim_IntList", layout=Layout.OWN)
def total(node: Node, context: Context) -> Value | Reject:
    """A sum of n values is n times their mean. The mean is stored in steps of 1/n of the sum's scale, so the product with n
    changes only the scale, not the bytes. (LiteRT 2.3.0's reference SUM takes int8 for uint8.)"""
    data, dims, kept = _reduced(node, context)
    count = math.prod(data.shape[dim] for dim in dims)
    quant = context.result_quant(node)
    means = mean_over(node, context, data, dims, kept, per_tensor(quant.scale / count, quant.zero_point))
    factor = context.add_factor(f"{node.name}_count", float(count), context.dtype(data))
    stored = context.tensors[means.tensor].shape
    name = context.emit("mul", (means.tensor, factor), stored, quant, node.name, activation="NONE")
    return context.viewed(Value(name, means.shape, means.order, means.base), shape_of(node))


def _reduced(node: Node, context: Context) -> tuple[Value, Shape, Shape]:
    given = arguments_of(node)
    data = context.settled(context.value(given["self"]))
    rank = len(data.shape)
    # PyTorch takes dimension 0 of a single number, which has none.
    dims = tuple(sorted({dim % rank for dim in (given.get("dim") or range(rank))})) if rank else ()
    return data, dims, tuple(1 if axis in dims else extent for axis, extent in enumerate(data.shape))


def mean_over(
    node: Node, context: Context, data: Value, dims: Shape, shape: Shape, quant: QuantParams | None = None
) -> Value:
    """Return the mean over ``dims``, which stay as ones, with this quantization, or that of the node's result."""
    data = context.settled(data)
    quant = quant or context.result_quant(node)
    order = data.order
    if len(order) == 4 and dims == (2, 3):
        data = context.from_nhwc(context.nhwc(data), data.shape)
        order = data.order
    axes = context.add_integers(f"{node.name}_axes", [place for place, axis in enumerate(order) if axis in dims])
    stored = tuple(shape[axis] for axis in order)
    name = context.emit("mean", (data.tensor, axes), stored, quant, node.name, keep_dims=True)
    return Value(name, shape, order, shape)


def _extremum(op: str) -> Callable[[Node, Context], Value | Reject]:
    def rule(node: Node, context: Context) -> Value | Reject:
        quant = context.result_quant(node)
        stem = f"{node.name}_operand"
        operands = [context.requantized(context.value(item), quant, stem) for item in node.args[:2]]
        return broadcasting(node, context, op, operands, quant)

    return rule


for _op in ("maximum", "minimum"):
    lowers(f"aten.{_op}.default", moves=True)(_extremum(_op))


@lowers("aten.amax.default", "aten.amin.default", moves=True, layout=Layout.OWN)
def extreme(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    value = context.settled(context.value(given["self"]))
    rank = len(value.shape)
    if not rank:
        return Reject("its input is a single number")
    dims = {dim % rank for dim in (given["dim"] or range(rank))}
    places = [place for place, axis in enumerate(value.order) if axis in dims and value.shape[axis] > 1]
    quant, name = context.quant(value), value.tensor
    op = "reduce_max" if op_name(node).startswith("aten.amax") else "reduce_min"
    for part in _two_runs(places):
        stored = tuple(1 if place in part else extent for place, extent in enumerate(context.tensors[name].shape))
        axes = context.add_integers(f"{node.name}_axes", part)
        name = context.emit(op, (name, axes), stored, quant, node.name, keep_dims=True)
    kept = tuple(1 if axis in dims else extent for axis, extent in enumerate(value.shape))
    result = context.viewed(Value(name, kept, value.order, kept), shape_of(node))
    return context.requantized(result, context.result_quant(node), f"{node.name}_requantized")


def _two_runs(places: list[int]) -> list[list[int]]:
    """Return the places, at most two runs of neighbours in each list: what the kernel reduces at a time."""
    runs: list[list[int]] = []
    for place in places:
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return [[place for run in runs[first : first + 2] for place in run] for first in range(0, len(runs), 2)]
