# SPDX-License-Identifier: BSD-3-Clause
"""Linear layers and products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch.fx import Node

from openneutron.pytorch.graph.program import Reject, Rejected, arguments_of, shape_of
from openneutron.pytorch.operators.convolution.lower import bias_of
from openneutron.pytorch.operators.rules.context import Context
from openneutron.pytorch.operators.rules.results import Shape, Value, lies_as, plain
from openneutron.pytorch.operators.rules.tables import Layout, always, lowers


@lowers("aten.linear.default", fuses=True, preserve=always, layout=Layout.OWN)
def linear(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    weight = context.value(given["weight"])
    if not context.is_constant(weight) and given["bias"] is None:
        return _product(node, context, context.value(given["input"]), weight, weight_turned=True)
    return _linear(node, context, given["input"], weight, given["bias"])


@lowers("aten.addmm.default", fuses=True, layout=Layout.OWN)
def addmm(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    if given["alpha"] != 1 or given["beta"] != 1:
        return Reject(f"alpha is {given['alpha']} and beta {given['beta']}; both must be 1")
    return _linear(node, context, given["mat1"], _transposed_weight(context, given["mat2"]), given["self"])


@lowers("aten.mm.default", fuses=True, layout=Layout.OWN)
def mm(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    if context.is_constant(context.value(given["mat2"])):
        return _linear(node, context, given["self"], _transposed_weight(context, given["mat2"]), None)
    return _product(node, context, context.value(given["self"]), context.value(given["mat2"]))


@lowers("aten.matmul.default", preserve=always, layout=Layout.OWN)
def matmul(node: Node, context: Context) -> Value | Reject:
    """A vector on the left is one row, a vector on the right one column."""
    a, b = (context.value(item) for item in node.args)
    if len(a.shape) == 1:
        a = context.viewed(a, (1, *a.shape))
    if len(b.shape) == 1:
        b = context.viewed(b, (*b.shape, 1))
    return _product(node, context, a, b)


lowers("aten.bmm.default", layout=Layout.OWN)(matmul)


def _product(node: Node, context: Context, a: Value, b: Value, weight_turned: bool = False) -> Value | Reject:
    """BATCH_MATMUL, which reads either operand as it lies, rows or columns innermost."""
    if context.results.fused(node) is not None:
        return Reject(
            "a clamp behind it runs inside it, which products of computed matrices can't", "Quantize between."
        )
    if not a.shape or not b.shape:
        return Reject("an operand is a single number")
    left, adj_x = _as_matrices(context, a)
    right, adj_y = _as_matrices(context, b)
    columns = b.shape[-2 if weight_turned else -1]
    batches = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    stored = (*batches, a.shape[-2], columns)
    quant = context.result_quant(node)
    adj_y ^= weight_turned
    name = context.emit("batch_matmul", (left, right), stored, quant, node.name, adj_x=adj_x, adj_y=adj_y)
    return context.viewed(plain(name, stored), shape_of(node))


def _as_matrices(context: Context, value: Value) -> tuple[str, bool]:
    """Return the tensor with rows and columns innermost, and whether columns come first."""
    value = context.settled(value)
    order = tuple(range(len(value.shape)))
    turned = (*order[:-2], order[-1], order[-2])
    for each, adjoint in ((order, False), (turned, True)):
        if lies_as(value.shape, value.order, each):
            return context.arranged(value, each), adjoint
    return context.arranged(value, order), False


def _transposed_weight(context: Context, node: Any) -> Value:
    value = context.settled(context.value(node))
    if len(value.shape) != 2:
        raise Rejected(f"its weights have rank {len(value.shape)}; it must be 2")
    return Value(value.tensor, value.shape[::-1], tuple(1 - axis for axis in value.order), value.shape[::-1])


def _linear(node: Node, context: Context, data: Any, weight: Value, bias: Any) -> Value | Reject:
    if not context.is_constant(weight):
        return Reject("its weights are computed at run time; they must be constant")
    shape, quant = shape_of(node), context.result_quant(node)
    weights = context.arranged(weight, (0, 1))
    value = context.value(data)
    source, weights, order = _features_last(context, value, weights)
    stored = tuple(shape[axis] for axis in order)
    inputs = (source, weights, bias_of(context, bias, source, weights, shape[-1]))
    name = context.emit(
        "fully_connected",
        inputs,
        stored,
        quant,
        node.name,
        activation=context.activation(node, quant),
        keep_num_dims=len(shape) != 2,
    )
    return Value(name, shape, order, shape)


def _features_last(context: Context, value: Value, weights: str) -> tuple[str, str, Shape]:
    """Return (input tensor, weights, order of its axes) with the features innermost.

    Where the input is an image flattened batch by batch, the weights' columns are put in the order in which it lies.
    """
    features = len(value.shape) - 1
    if not value.is_settled and len(value.shape) == 2 and value.order[0] == 0 and value.base[0] == value.shape[0]:
        inputs = tuple(axis - 1 for axis in value.order[1:])
        weights = _columns_in_order(context, weights, value.base[1:], inputs)
        return context.reshaped(value.tensor, value.shape), weights, (0, 1)
    if value.is_settled and value.order[-1] == features:
        return value.tensor, weights, value.order
    order = tuple(range(len(value.shape)))
    return context.arranged(value, order), weights, order


def _columns_in_order(context: Context, weights: str, extents: Shape, order: Shape) -> str:
    here = context.tensors[weights]
    assert here.data is not None
    filters = here.shape[0]
    if not any(here.data.strides):
        return weights
    cube = here.data.reshape(filters, *extents).transpose(0, *(axis + 1 for axis in order))
    return context.add_constant(f"{weights}_nhwc", np.ascontiguousarray(cube).reshape(here.shape), here.quant)
