# SPDX-License-Identifier: BSD-3-Clause
"""Transposed convolutions in one and two dimensions.

LiteRT's TRANSPOSE_CONV knows neither groups nor dilation: both become zeros among the weights, which selection leaves out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch.fx import Node

from openneutron.ir import DType, QuantParams
from openneutron.pytorch.graph.program import arguments_of, pair, shape_of
from openneutron.pytorch.graph.reject import Reject, Rejected
from openneutron.pytorch.operators.convolution.lower import bias_of, convolution, operands_of, spatial, with_row
from openneutron.pytorch.operators.rules.context import Context
from openneutron.pytorch.operators.rules.lowering import Layout, lowers
from openneutron.pytorch.operators.rules.values import Value

Pair = tuple[int, int]


@lowers("aten.convolution.default", fuses=True, layout=Layout.NHWC)
def any_convolution(node: Node, context: Context) -> Value | Reject:
    """ExecuTorch gives every convolution this form. The quantizer decomposes those in three dimensions before."""
    return (conv_transpose if arguments_of(node)["transposed"] else convolution)(node, context)


@lowers(
    "aten.conv_transpose1d.default",
    "aten.conv_transpose2d.input",
    fuses=True,
    layout=Layout.NHWC,
)
def conv_transpose(node: Node, context: Context) -> Value | Reject:
    """TRANSPOSE_CONV, with a SLICE behind it where PyTorch's padding leaves out what neither SAME nor VALID does."""
    given, shape = arguments_of(node), shape_of(node)
    operands = operands_of(context, given, shape)
    if isinstance(operands, Reject):
        return operands
    data, weight = operands
    one_row, shape_2d = len(shape) == 3, with_row(shape)
    stride, dilation = (spatial(given[key], one_row, 1) for key in ("stride", "dilation"))
    before = spatial(given["padding"], one_row, 0)
    source = context.nhwc(context.viewed(data, with_row(data.shape)))
    extents, result = pair(context.tensors[source].shape[1:3]), pair(shape_2d[2:])
    kernel = pair(with_row(weight.shape)[2:])
    spread = _each(lambda taps, step: (taps - 1) * step + 1, kernel, dilation)
    padding, whole = "SAME", result
    if not _is_same(extents, result, spread, stride, before):
        # What lies behind the windows holds the bias alone; VALID lets it be shorter than a stride.
        behind = _each(
            lambda left, size, step, taps, out: max(0, left + out - (size - 1) * step - taps),
            before, extents, stride, spread, result,
        )  # fmt: skip
        whole = _each(lambda size, step, taps, more: (size - 1) * step + taps + more, extents, stride, spread, behind)
        spread = _each(lambda taps, more, step: taps + max(0, more - step + 1), spread, behind, stride)
        padding = "VALID"
    weights = _weights(context, weight, given["groups"], spread, dilation)
    quant, filters = context.result_quant(node), shape[1]
    stored = (shape[0], *whole, filters)
    name = context.emit(
        "transpose_conv",
        (
            context.add_integers(f"{node.name}_shape", stored),
            weights,
            source,
            bias_of(context, given["bias"], source, weights, filters),
        ),
        stored,
        quant,
        node.name,
        padding=padding,
        stride_h=stride[0],
        stride_w=stride[1],
        activation=context.activation(node, quant),
    )
    if whole != result:
        begin = context.add_integers(f"{node.name}_begin", (0, *before, 0))
        stored = (shape[0], *result, filters)
        size = context.add_integers(f"{node.name}_size", stored)
        name = context.emit("slice", (name, begin, size), stored, quant, f"{node.name}_cropped")
    return context.viewed(context.from_nhwc(name, shape_2d), shape)


def _each(rule: Any, *sides: Pair) -> Pair:
    rows, columns = (rule(*numbers) for numbers in zip(*sides, strict=True))
    return rows, columns


def _is_same(extents: Pair, result: Pair, spread: Pair, stride: Pair, before: Pair) -> bool:
    """Return whether LiteRT's SAME takes outputs of this extent and leaves out the same of them."""

    def one(size: int, out: int, taps: int, step: int, left: int) -> bool:
        least = (size - 1) * step
        return least < out <= least + step and max(0, least + taps - out) // 2 == left

    return all(_each(one, extents, result, spread, stride, before))


def _weights(context: Context, weight: Value, groups: int, spread: Pair, dilation: Pair) -> str:
    """Return a constant [output, height, width, input] of PyTorch's weights [input, output of the group, height,
    width], ``spread`` rows and columns large, with zeros between the taps and between the groups."""
    name = context.arranged(weight, tuple(range(len(weight.shape))))
    here = context.tensors[name]
    inputs, group_outputs, kernel_h, kernel_w = with_row(weight.shape)
    assert here.data is not None and here.quant is not None
    quant = output_scales(here.quant, groups, inputs, group_outputs)
    shape = (groups * group_outputs, *spread, inputs)
    if here.data.size > 1 and not any(here.data.strides):
        # Only the shape is known while ExecuTorch partitions.
        return context.add_constant(f"{name}_ohwi", np.broadcast_to(np.zeros((), DType.INT8.numpy), shape), quant)
    cube = here.data.reshape(groups, inputs // groups, group_outputs, kernel_h, kernel_w).transpose(0, 2, 3, 4, 1)
    dense = np.zeros((groups, group_outputs, *spread, groups, inputs // groups), here.data.dtype)
    rows, columns = (step * (taps - 1) + 1 for step, taps in zip(dilation, (kernel_h, kernel_w), strict=True))
    for group in range(groups):
        dense[group, :, : rows : dilation[0], : columns : dilation[1], group] = cube[group]
    return context.add_constant(f"{name}_ohwi", dense.reshape(shape), quant)


def output_scales(quant: QuantParams, groups: int, inputs: int, group_outputs: int) -> QuantParams:
    """Return the weights' scales, one for each output channel (or one for all)."""
    if quant.axis is None:
        return quant
    if any(quant.zero_points):
        raise Rejected("its weights have a zero point; weights must be symmetric")
    if quant.axis == 1:
        return QuantParams(quant.scales * groups, quant.zero_points * groups, 0)
    if quant.axis == 0 and inputs == groups:
        scales = tuple(scale for scale in quant.scales for _ in range(group_outputs))
        return QuantParams(scales, (0,) * len(scales), 0)
    raise Rejected(
        f"its weights have a scale for each index of axis {quant.axis}, where each output channel needs one",
        "Quantize with NeutronQuantizer, or along axis 1.",
    )
