# SPDX-License-Identifier: BSD-3-Clause
"""Padding with a number or the edge, and reflected and circular padding. Negative amounts crop."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch.fx import Node

from openneutron.pytorch.graph.program import Reject, arguments_of, op_name, shape_of
from openneutron.pytorch.operators.convolution import pad
from openneutron.pytorch.operators.rules.context import Context, Shape, Value, ends_of, take
from openneutron.pytorch.operators.rules.tables import lowers

Amounts = list[tuple[int, int]]
"""The amounts of padding before and after each dimension. A negative amount is cut off."""


def _amounts(flat: list[int], rank: int) -> Amounts:
    """Return the amounts for all dimensions from PyTorch's flat list, which starts with the last dimension."""
    amounts = [(0, 0)] * rank
    for place in range(len(flat) // 2):
        amounts[-1 - place] = (flat[2 * place], flat[2 * place + 1])
    return amounts


@lowers(
    "aten.pad.default",
    "aten.constant_pad_nd.default",
    moves=True,
    preserve=lambda node: arguments_of(node).get("mode", "constant") != "constant",
    emits=("pad", "padv2", "slice", "gather", "mirror_pad"),
)
def padding(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    mode = given.get("mode", "constant")
    if mode == "constant":
        return _constant(node, context, list(given["pad"]), float(given.get("value") or 0.0))
    return _repeated(node, context, mode, list(given["pad"]))


@lowers(
    *(f"aten.{mode}_pad{n}d.default" for mode in ("reflection", "replication") for n in (1, 2, 3)),
    moves=True,
    preserve=lambda _: True,
    emits=("pad", "padv2", "slice", "gather", "mirror_pad"),
)
def repeated_padding(node: Node, context: Context) -> Value | Reject:
    mode = "reflect" if "reflection" in op_name(node) else "replicate"
    return _repeated(node, context, mode, list(arguments_of(node)["padding"]))


def _repeated(node: Node, context: Context, mode: str, flat: list[int]) -> Value | Reject:
    value, shape = context.settled(context.value(node.args[0])), shape_of(node)
    amounts = [_amounts(flat, len(value.shape))[axis] for axis in value.order]
    name = value.tensor
    padded = [axis for axis, pair in enumerate(amounts) if any(pair)]
    if mode == "reflect" and len(padded) == 2 and all(min(amounts[axis]) >= 0 for axis in padded):
        name = _mirror_pad(node, context, name, amounts)
    else:
        for axis in padded:
            # The input position that PyTorch copies to each position of the result.
            numbers = torch.arange(context.tensors[name].shape[axis], dtype=torch.float32).reshape(1, 1, -1)
            positions = F.pad(numbers, amounts[axis], mode).reshape(-1)
            name = take(context, name, axis, [int(place) for place in positions], node.name)
    return _in_result_quant(node, context, Value(name, shape, value.order, shape))


def _mirror_pad(node: Node, context: Context, name: str, amounts: Amounts) -> str:
    here = context.tensors[name]
    assert here.quant is not None
    operand = context.add_constant(f"{node.name}_paddings", np.asarray(amounts, np.int32))
    shape = tuple(extent + sum(pair) for extent, pair in zip(here.shape, amounts, strict=True))
    return context.emit("mirror_pad", (name, operand), shape, here.quant, node.name, mode="REFLECT")


def _constant(node: Node, context: Context, flat: list[int], filler: float) -> Value | Reject:
    if math.isnan(filler):
        return Reject("it pads with NaN, which no integer can hold")
    value = context.settled(context.value(node.args[0]))
    amounts = _amounts(flat, len(value.shape))
    cropped = _cropped(node, context, value, amounts)
    if cropped.shape == shape_of(node):
        return _in_result_quant(node, context, cropped)
    value = cropped
    quant, dtype = context.quant(value), context.dtype(value)
    least, most = ends_of(dtype)
    if not least - 0.5 <= quant.zero_point + filler / quant.scale < most + 0.5:
        if not context.results.is_quantized(node):
            return Reject(f"it pads with {filler:g}, which its input's {dtype} range does not reach")
        # The result's own range saturates the filler as its quantize node does.
        value = _in_result_quant(node, context, value)
    quant = context.quant(value)
    stored = tuple((max(amounts[axis][0], 0), max(amounts[axis][1], 0)) for axis in value.order)
    shape = shape_of(node)
    name = pad(context, value.tensor, stored, context.pad_value(quant, filler, dtype))
    return _in_result_quant(node, context, Value(name, shape, value.order, shape))


def _cropped(node: Node, context: Context, value: Value, amounts: Amounts) -> Value:
    begins = [max(-before, 0) for before, _ in amounts]
    shape: Shape = tuple(
        extent + min(before, 0) + min(after, 0) for extent, (before, after) in zip(value.shape, amounts, strict=True)
    )
    if shape == value.shape:
        return value
    stored = tuple(shape[axis] for axis in value.order)
    begin = context.add_integers(f"{node.name}_begin", [begins[axis] for axis in value.order])
    size = context.add_integers(f"{node.name}_rest", stored)
    name = context.emit("slice", (value.tensor, begin, size), stored, context.quant(value), f"{node.name}_rest")
    return Value(name, shape, value.order, shape)


def _in_result_quant(node: Node, context: Context, value: Value) -> Value:
    return context.requantized(value, context.results.quant(node), f"{node.name}_requantized")
