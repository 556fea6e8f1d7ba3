# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions and fully connected layers as kernel calls."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from openneutron.compiler.select.calls import KernelCall, View, dense_pitches, quant_of, requantization, selects, whole
from openneutron.ir import Graph, Node, Tensor
from openneutron.ops.conv import explicit_padding
from openneutron.ops.rescaling import (
    Multipliers,
    activation_range,
    fit_multipliers,
    of_convolution,
    quantize_multipliers,
    single_rounding_range,
)


@selects("conv_2d", "depthwise_conv_2d")
def conv_2d(graph: Graph, node: Node) -> list[KernelCall]:
    """Select depthwise_conv_2d_s8, or conv_2d_1x1_s8 where the kernel is one point without padding or groups, or conv_2d_s8.

    The depth multiplier follows from the shapes, as in LiteRT.
    """
    source, result = graph.given(node, 0), graph[node.name]
    weights = _weights(graph, node)
    depthwise = node.op == "depthwise_conv_2d"
    weights = weights.transpose(3, 1, 2, 0) if depthwise else weights
    _, kernel_h, kernel_w, group_inputs = weights.shape
    _, height, width, channels = source.shape
    padding = explicit_padding(node, height, width, kernel_h, kernel_w)
    groups = channels // group_inputs
    pointwise = kernel_h == kernel_w == groups == 1 and not any(padding)
    kernel = "depthwise_conv_2d_s8" if depthwise else "conv_2d_1x1_s8" if pointwise else "conv_2d_s8"
    call = convolution(
        kernel,
        node,
        {"input": whole(source), "output": whole(result)},
        weights,
        _bias(graph, node),
        quantize_multipliers(of_convolution(0, 1)(graph, node)),
        zero_points(source, result),
        clamp_of(node, result),
        groups=groups,
        stride=(node["stride_h"], node["stride_w"]),
        dilation=(node.attrs.get("dilation_h", 1), node.attrs.get("dilation_w", 1)),
        pad=(padding[0], padding[2]),
    )
    return [call]


@selects("fully_connected")
def fully_connected(graph: Graph, node: Node) -> list[KernelCall]:
    """Select conv_2d_1x1_s8 over one row with a column for each input vector, whatever the ranks.

    LiteRT's reference kernel rounds a product of doubles once; the multipliers are fitted to do the same.
    """
    source, result = graph.given(node, 0), graph[node.name]
    weights = _weights(graph, node)
    filters, inputs = weights.shape
    vectors = math.prod(source.shape) // inputs
    multipliers = fit_multipliers(of_convolution(0, 1)(graph, node), *single_rounding_range(graph, node))
    assert multipliers is not None, "the row's limits refuse what can't be fitted"
    call = convolution(
        "conv_2d_1x1_s8",
        node,
        {"input": _vectors(source, vectors, inputs), "output": _vectors(result, vectors, filters)},
        weights[:, None, None, :],
        _bias(graph, node),
        multipliers,
        zero_points(source, result),
        clamp_of(node, result),
        single_rounding=True,
    )
    return [call]


def convolution(
    kernel: str,
    node: Node,
    views: Mapping[str, View],
    weights: npt.NDArray[np.int8],
    bias: npt.NDArray[np.int32] | None,
    multipliers: Multipliers,
    zero_points: tuple[int, int],
    clamp: tuple[int, int],
    *,
    groups: int = 1,
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    pad: tuple[int, int] = (0, 0),
    single_rounding: bool = False,
) -> KernelCall:
    """Return the call of a convolution with weights [output, height, width, input of the group].

    ``zero_points``: of the input and of the output; ``clamp``: the lowest and the highest stored result. Pairs are of rows and of
    columns; ``pad``: before the first one.
    """
    filters, kernel_h, kernel_w, group_inputs = weights.shape
    params = {
        "kernel_h": kernel_h,
        "kernel_w": kernel_w,
        "stride_h": stride[0],
        "stride_w": stride[1],
        "dilation_h": dilation[0],
        "dilation_w": dilation[1],
        "pad_top": pad[0],
        "pad_left": pad[1],
        "group_inputs": group_inputs,
        "group_outputs": filters // groups,
        "single_rounding": int(single_rounding),
        "constant_channel0": 0,
        "constant_channels": filters,
        "input_zero_point": zero_points[0],
        "output_zero_point": zero_points[1],
        "clamp_min": clamp[0],
        "clamp_max": clamp[1],
    }
    sums = np.asarray(weights.sum(axis=(1, 2, 3), dtype=np.int64))
    requant = requantization(bias, sums, zero_points[0], *multipliers)
    return KernelCall(kernel, node.name, views, params, {"weights": weights, "requant": requant})


def zero_points(source: Tensor, result: Tensor) -> tuple[int, int]:
    """Return the zero points of a node's input and result."""
    return quant_of(source).zero_point, quant_of(result).zero_point


def clamp_of(node: Node, result: Tensor) -> tuple[int, int]:
    """Return the lowest and the highest stored result of a node with an activation."""
    output = quant_of(result)
    return activation_range(node.attrs.get("activation", "NONE"), output.scale, output.zero_point)


def _vectors(tensor: Tensor, count: int, channels: int) -> View:
    extents = (1, 1, count, channels)
    return View(tensor.name, extents, dense_pitches(extents))


def _weights(graph: Graph, node: Node) -> npt.NDArray[np.int8]:
    weights = graph.given(node, 1).data
    assert weights is not None, f"the weights of {node.name} are not constant"
    return weights


def _bias(graph: Graph, node: Node) -> npt.NDArray[np.int32] | None:
    bias = graph.operand(node, 2)
    assert bias is None or bias.data is not None, f"the bias of {node.name} is not constant"
    return None if bias is None or bias.data is None else bias.data.reshape(-1)
