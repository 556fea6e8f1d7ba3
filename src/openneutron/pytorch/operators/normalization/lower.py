# SPDX-License-Identifier: BSD-3-Clause
"""Normalizations by statistics of the input, as one operator each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from openneutron.pytorch.graph.program import Reject, Rejected, arguments_of, shape_of
from openneutron.pytorch.operators.rules.context import Context
from openneutron.pytorch.operators.rules.results import Shape, Value
from openneutron.pytorch.operators.rules.tables import Layout, always, lowers


@lowers("aten.layer_norm.default", preserve=always, layout=Layout.OWN)
def layer_norm(node: Node, context: Context) -> Value | Reject:
    return _lines(node, context, True)


@lowers("aten.rms_norm.default", preserve=always, layout=Layout.OWN)
def rms_norm(node: Node, context: Context) -> Value | Reject:
    return _lines(node, context, False)


def _lines(node: Node, context: Context, centred: bool) -> Value:
    """Return layer_norm over the last dimensions as one axis, in the order of the tensor's memory."""
    given, shape = arguments_of(node), shape_of(node)
    data = context.settled(context.value(given["input"]))
    count = len(given["normalized_shape"])
    kept = tuple(axis for axis in data.order if axis < len(shape) - count)
    normalized = tuple(axis for axis in data.order if axis >= len(shape) - count)
    order = (*kept, *normalized)
    stored = tuple(shape[axis] for axis in order)
    lines = (*stored[: len(kept)], math.prod(stored[len(kept) :]))
    source = context.reshaped(context.arranged(data, order), lines)
    own = tuple(axis - len(kept) for axis in normalized)
    gain, bias = (_numbers(context, given.get(name), given["normalized_shape"], own) for name in ("weight", "bias"))
    epsilon = torch.finfo(torch.float32).eps if given["eps"] is None else given["eps"]
    quant = context.result_quant(node)
    name = context.emit(
        "layer_norm", (source, gain, bias), lines, quant, node.name, epsilon=float(epsilon), centred=centred
    )
    return Value(context.reshaped(name, stored), shape, order, shape)


@lowers("aten.group_norm.default", preserve=always, layout=Layout.NHWC)
def group_norm(node: Node, context: Context) -> Value | Reject:
    """Rows and columns of the image are the dimensions behind the channels, in any order."""
    given, shape = arguments_of(node), shape_of(node)
    data = context.settled(context.value(given["input"]))
    order = (0, *(axis for axis in data.order if axis > 1), 1)
    stored = tuple(shape[axis] for axis in order)
    rows, cols = (stored[1], math.prod(stored[2:-1])) if len(shape) > 3 else (1, math.prod(stored[1:-1]))
    image = (shape[0], rows, cols, shape[1])
    source = context.reshaped(context.arranged(data, order), image)
    gain, bias = (_numbers(context, given[name], shape[1:2], (0,)) for name in ("weight", "bias"))
    attrs = {"epsilon": float(given["eps"]), "groups": given["num_groups"]}
    name = context.emit("group_norm", (source, gain, bias), image, context.result_quant(node), node.name, **attrs)
    return Value(context.reshaped(name, stored), shape, order, shape)


def _numbers(context: Context, node: Any, shape: Sequence[int], order: Shape) -> str | None:
    """Return a constant float32 vector of a gain or bias, its axes in this order; None where it is not given."""
    if node is None:
        return None
    if node not in context.constants:
        raise Rejected("its gain or bias is computed at run time; both must be constant")
    value = context.constants.array(node)
    if value.size > 1 and not any(value.strides):
        # Only the shape is known while ExecuTorch partitions.
        return context.add_constant(node.name, np.broadcast_to(np.zeros((), np.float32), (value.size,)))
    return context.add_constant(node.name, value.reshape(tuple(shape)).transpose(order).reshape(-1).astype(np.float32))
