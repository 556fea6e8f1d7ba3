# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions and fully connected layers as kernel calls."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from openneutron.compiler.select.calls import KernelCall, View, dense_pitches, selects, whole
from openneutron.compiler.select.constants import requantization, sums_of_weights
from openneutron.ir import Graph, Node, QuantParams, Tensor
from openneutron.ops.conv import explicit_padding
from openneutron.ops.fixed_point import Multipliers, fit_multipliers, quantize_multipliers
from openneutron.ops.rescaling import activation_range, of_convolution, single_rounding_range


@selects("conv_2d")
def conv_2d(graph: Graph, node: Node) -> list[KernelCall]:
    """conv_2d_1x1_s8 where the kernel is one point without padding or groups, else conv_2d_s8."""
    source, weights, bias, result = _operands(graph, node)
    filters, kernel_h, kernel_w, group_inputs = weights.shape
    _, height, width, channels = source.shape
    top, bottom, left, right = explicit_padding(node, height, width, kernel_h, kernel_w)
    groups = channels // group_inputs
    pointwise = kernel_h == kernel_w == groups == 1 and top == bottom == left == right == 0
    data = _data(weights)
    params = {
        **_window_params(node, kernel_h, kernel_w, top, left),
        "group_inputs": group_inputs,
        "group_outputs": filters // groups,
        "single_rounding": 0,
        **_range_params(node, source, result, filters),
    }
    scales = of_convolution(0, 1)(graph, node)
    constants = {
        "weights": data,
        "requant": _table(source, bias, sums_of_weights(data, 0), quantize_multipliers(scales)),
    }
    kernel = "conv_2d_1x1_s8" if pointwise else "conv_2d_s8"
    views = {"input": whole(source), "output": whole(result)}
    return [KernelCall(kernel, node.name, views, params, constants)]


@selects("depthwise_conv_2d")
def depthwise_conv_2d(graph: Graph, node: Node) -> list[KernelCall]:
    """depthwise_conv_2d_s8; the depth multiplier follows from the shapes, as in LiteRT."""
    source, weights, bias, result = _operands(graph, node)
    _, kernel_h, kernel_w, filters = weights.shape
    _, height, width, channels = source.shape
    top, _, left, _ = explicit_padding(node, height, width, kernel_h, kernel_w)
    data = _data(weights)
    params = {
        **_window_params(node, kernel_h, kernel_w, top, left),
        "group_inputs": 1,
        "group_outputs": filters // channels,
        "single_rounding": 0,
        **_range_params(node, source, result, filters),
    }
    scales = of_convolution(0, 1)(graph, node)
    constants = {
        "weights": data.transpose(3, 1, 2, 0),
        "requant": _table(source, bias, sums_of_weights(data, 3), quantize_multipliers(scales)),
    }
    views = {"input": whole(source), "output": whole(result)}
    return [KernelCall("depthwise_conv_2d_s8", node.name, views, params, constants)]


@selects("fully_connected")
def fully_connected(graph: Graph, node: Node) -> list[KernelCall]:
    """conv_2d_1x1_s8 over one row with a column for each input vector, whatever the ranks.

    LiteRT's reference kernel rounds a product of doubles once; the multipliers are fitted to do the same.
    """
    source, weights, bias, result = _operands(graph, node)
    filters, inputs = weights.shape
    vectors = math.prod(source.shape) // inputs
    data, scales = _data(weights), of_convolution(0, 1)(graph, node)
    params = {
        **_POINT_WINDOW,
        "group_inputs": inputs,
        "group_outputs": filters,
        "single_rounding": 1,
        **_range_params(node, source, result, filters),
    }
    multipliers = fit_multipliers(scales, *single_rounding_range(graph, node))
    assert multipliers is not None, "the row's limits refuse what can't be fitted"
    constants = {
        "weights": data[:, None, None, :],
        "requant": _table(source, bias, sums_of_weights(data, 0), multipliers),
    }
    views = {"input": _vectors(source, vectors, inputs), "output": _vectors(result, vectors, filters)}
    return [KernelCall("conv_2d_1x1_s8", node.name, views, params, constants)]


_POINT_WINDOW = {
    "kernel_h": 1,
    "kernel_w": 1,
    "stride_h": 1,
    "stride_w": 1,
    "dilation_h": 1,
    "dilation_w": 1,
    "pad_top": 0,
    "pad_left": 0,
}


def _window_params(node: Node, kernel_h: int, kernel_w: int, top: int, left: int) -> dict[str, int]:
    return {
        "kernel_h": kernel_h,
        "kernel_w": kernel_w,
        "stride_h": node["stride_h"],
        "stride_w": node["stride_w"],
        "dilation_h": node.attrs.get("dilation_h", 1),
        "dilation_w": node.attrs.get("dilation_w", 1),
        "pad_top": top,
        "pad_left": left,
    }


def _range_params(node: Node, source: Tensor, result: Tensor, filters: int) -> dict[str, int]:
    output = _quant(result)
    low, high = activation_range(node.attrs.get("activation", "NONE"), output.scale, output.zero_point)
    return {
        "constant_channel0": 0,
        "constant_channels": filters,
        "input_zero_point": _quant(source).zero_point,
        "output_zero_point": output.zero_point,
        "clamp_min": low,
        "clamp_max": high,
    }


def _table(
    source: Tensor, bias: Tensor | None, sums: npt.NDArray[np.int64], multipliers: Multipliers
) -> npt.NDArray[np.int32]:
    values = None if bias is None else _data(bias).reshape(-1)
    return requantization(values, sums, _quant(source).zero_point, *multipliers)


def _vectors(tensor: Tensor, count: int, channels: int) -> View:
    extents = (1, 1, count, channels)
    return View(tensor.name, extents, dense_pitches(extents))


def _operands(graph: Graph, node: Node) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    source, weights = graph.operand(node, 0), graph.operand(node, 1)
    assert source is not None and weights is not None
    return source, weights, graph.operand(node, 2), graph[node.outputs[0]]


def _quant(tensor: Tensor) -> QuantParams:
    assert tensor.quant is not None, f"{tensor.name} has no quantization parameters"
    return tensor.quant


def _data(tensor: Tensor) -> npt.NDArray[Any]:
    assert tensor.data is not None, f"{tensor.name} is not a constant"
    return tensor.data
