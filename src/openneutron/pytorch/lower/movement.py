# SPDX-License-Identifier: BSD-3-Clause
"""Operators that only move values or rename dimensions."""

from __future__ import annotations

from torch.fx import Node

from openneutron.pytorch.lower.arguments import arguments_of
from openneutron.pytorch.lower.context import Context
from openneutron.pytorch.lower.program import GETITEM, shape_of
from openneutron.pytorch.lower.rules import Layout, Reject, lowers
from openneutron.pytorch.lower.values import Value, permuted


def _moved(node: Node, context: Context, value: Value) -> Value:
    """The value in the quantization that the node's result ends in."""
    return context.requantized(value, context.result_quant(node), f"{node.name}_requantized")


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
)
def nothing(node: Node, context: Context) -> Value | Reject:
    if arguments_of(node).get("train"):
        return Reject("it drops values at random; export the model in eval mode")
    return _moved(node, context, context.value(node.args[0]))


@lowers(
    "aten._to_copy.default",
    "aten.to.dtype",
    "dim_order_ops._to_dim_order_copy.default",
    moves=True,
)
def copy(node: Node, context: Context) -> Value | Reject:
    source = node.args[0]
    if isinstance(source, Node) and source.meta["val"].dtype != node.meta["val"].dtype:
        return Reject(f"it converts {source.meta['val'].dtype} to {node.meta['val'].dtype}")
    return _moved(node, context, context.value(source))


@lowers("aten.as_strided.default", "aten.as_strided_copy.default", moves=True)
def as_strided(node: Node, context: Context) -> Value | Reject:
    """Nothing, where it only says again how its input lies (what an adaptive pool to 1x1 of channels-last images makes)."""
    given = arguments_of(node)
    source = node.args[0].meta["val"]
    told = [(extent, stride) for extent, stride in zip(given["size"], given["stride"], strict=True) if extent != 1]
    lies = [(extent, stride) for extent, stride in zip(source.shape, source.stride(), strict=True) if extent != 1]
    if tuple(given["size"]) != tuple(source.shape) or told != lies or given["storage_offset"]:
        return Reject("it reads its input's memory in another order")
    return _moved(node, context, context.value(node.args[0]))


@lowers(GETITEM, moves=True)
def first_result(node: Node, context: Context) -> Value | Reject:
    if node.args[1] != 0:
        return Reject("it is not the operator's first result")
    return _moved(node, context, context.value(node.args[0]))


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
    layout=Layout.OWN,
)
def view(node: Node, context: Context) -> Value | Reject:
    return _moved(node, context, context.viewed(context.value(node.args[0]), shape_of(node)))


@lowers("aten.permute.default", "aten.permute_copy.default", moves=True, layout=Layout.OWN)
def permute(node: Node, context: Context) -> Value | Reject:
    dims = arguments_of(node)["dims"]
    return _permuted(node, context, [dim % len(dims) for dim in dims])


@lowers("aten.transpose.int", "aten.transpose_copy.int", moves=True, layout=Layout.OWN)
def transpose(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    dims = list(range(len(shape_of(node))))
    first, second = given["dim0"] % len(dims), given["dim1"] % len(dims)
    dims[first], dims[second] = second, first
    return _permuted(node, context, dims)


@lowers("aten.t.default", "aten.t_copy.default", moves=True, layout=Layout.OWN)
def t(node: Node, context: Context) -> Value | Reject:
    return _permuted(node, context, list(range(len(shape_of(node))))[::-1])


def _permuted(node: Node, context: Context, dims: list[int]) -> Value:
    value = context.settled(context.value(node.args[0]))
    return _moved(node, context, permuted(value, tuple(dims)))


@lowers("aten.slice.Tensor", "aten.slice_copy.Tensor", moves=True)
def slice_of(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    if given["step"] != 1:
        return Reject(f"its step is {given['step']}; it must be 1")
    value, shape = context.settled(context.value(given["self"])), shape_of(node)
    dim = given["dim"] % len(value.shape)
    extent = value.shape[dim]
    start = given["start"] or 0
    start = min(max(start + extent if start < 0 else start, 0), extent)
    if shape == value.shape:
        return _moved(node, context, value)
    stored = tuple(shape[axis] for axis in value.order)
    begin = context.add_integers(f"{node.name}_begin", [start if axis == dim else 0 for axis in value.order])
    size = context.add_integers(f"{node.name}_size", stored)
    name = context.emit("slice", (value.tensor, begin, size), stored, context.quant(value), node.name)
    return _moved(node, context, Value(name, shape, value.order, shape))


@lowers("aten.cat.default", moves=True)
def cat(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    shape, quant = shape_of(node), context.result_quant(node)
    # PyTorch lets an empty list element of any shape pass.
    values = [context.value(item) for item in given["tensors"] if item.meta["val"].numel()]
    if not values:
        return Reject("all its inputs are empty")
    values = [context.settled(value) for value in values]
    orders = [value.order for value in values if not context.is_constant(value)] or [values[0].order]
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
