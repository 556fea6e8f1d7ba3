# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions and fully connected layers."""

from __future__ import annotations

import math

import numpy as np

from openneutron.ir import Graph, Node
from openneutron.ops.limits import (
    LARGEST_WINDOW_WORD,
    MOST_PARTS_OF_WEIGHTS,
    attr_among,
    limit,
    rank,
    window_numbers,
)
from openneutron.ops.rescaling import fitted_for_single_rounding, fused_activation, of_convolution, rescales
from openneutron.ops.table import INPUT, Attribute, Op, Operand, Role, shape_of

PADDING = Attribute("padding", "padding", "VALID", {0: "SAME", 1: "VALID"})
ACTIVATION = Attribute(
    "activation", "fusedActivationFunction", "NONE", {0: "NONE", 1: "RELU", 2: "RELU_N1_TO_1", 3: "RELU6"}
)
STRIDES = (Attribute("stride_h", "strideH", 1), Attribute("stride_w", "strideW", 1))
DILATIONS = (Attribute("dilation_h", "dilationHFactor", 1), Attribute("dilation_w", "dilationWFactor", 1))

Padding = tuple[int, int, int, int]
"""Rows above, rows below, columns left, columns right."""


def same_padding(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """Return padding before and after one axis under SAME; the odd one goes behind
    (tensorflow/lite/kernels/padding.h)."""
    output = -(-size // stride)
    total = max(0, (output - 1) * stride + (kernel - 1) * dilation + 1 - size)
    return total // 2, total - total // 2


def explicit_padding(node: Node, height: int, width: int, kernel_h: int, kernel_w: int) -> Padding:
    """Return the node's padding in rows and columns, for SAME, VALID and numbers."""
    padding = node["padding"]
    if padding == "VALID":
        return (0, 0, 0, 0)
    if padding == "SAME":
        top, bottom = same_padding(height, kernel_h, node["stride_h"], node.attrs.get("dilation_h", 1))
        left, right = same_padding(width, kernel_w, node["stride_w"], node.attrs.get("dilation_w", 1))
        return (top, bottom, left, right)
    top, bottom, left, right = padding
    return (top, bottom, left, right)


def window_output(node: Node, height: int, width: int, kernel_h: int, kernel_w: int) -> tuple[int, int]:
    """Return output rows and columns of a sliding window."""
    top, bottom, left, right = explicit_padding(node, height, width, kernel_h, kernel_w)
    rows = height + top + bottom - (kernel_h - 1) * node.attrs.get("dilation_h", 1) - 1
    cols = width + left + right - (kernel_w - 1) * node.attrs.get("dilation_w", 1) - 1
    return rows // node["stride_h"] + 1, cols // node["stride_w"] + 1


def _conv_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    batches, height, width, _ = shape_of(graph, node)
    filters, kernel_h, kernel_w, last = shape_of(graph, node, 1)
    outputs = filters if node.op == "conv_2d" else last
    return ((batches, *window_output(node, height, width, kernel_h, kernel_w), outputs),)


def _fully_connected_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    data, weights = graph.given(node, 0), graph.given(node, 1)
    outputs, inputs = weights.shape
    if node["keep_num_dims"]:
        return ((*data.shape[:-1], outputs),)
    return ((math.prod(data.shape) // inputs, outputs),)


def _groups(graph: Graph, node: Node) -> str | None:
    data, weights = graph.given(node, 0), graph.given(node, 1)
    if len(weights.shape) != 4 or weights.shape[-1] <= 0:
        return f"its weights have shape {list(weights.shape)}; they must be [output, height, width, input]"
    inputs, group_inputs, filters = data.shape[-1], weights.shape[-1], weights.shape[0]
    if inputs % group_inputs:
        return f"the weights read {group_inputs} channels, the input has {inputs}; it must be a multiple"
    groups = inputs // group_inputs
    if filters % groups:
        return f"it has {filters} output channels in {groups} groups; it must be a multiple"
    return None


def _depth_multiplier(graph: Graph, node: Node) -> str | None:
    data, weights = graph.given(node, 0), graph.given(node, 1)
    if len(weights.shape) != 4 or weights.shape[0] != 1:
        return f"its weights have shape {list(weights.shape)}; they must be [1, height, width, output]"
    if weights.shape[-1] % data.shape[-1]:
        return f"it has {weights.shape[-1]} output channels for {data.shape[-1]} input channels; it must be a multiple"
    return None


def _rows_of_split_weights(graph: Graph, node: Node) -> str | None:
    """uint8 weights with a zero point get rows for every row that the kernel reaches over, each several times (split_weights)."""
    weights = graph.given(node, 1)
    rows, most = (weights.shape[1] - 1) * node["dilation_h"] + 1, LARGEST_WINDOW_WORD // MOST_PARTS_OF_WEIGHTS
    if not node.attrs.get("unsigned") or rows <= most:
        return None
    return f"its kernel reaches over {rows} rows; with uint8 weights it must be at most {most}"


def _fully_connected_inputs(graph: Graph, node: Node) -> str | None:
    data, weights = graph.given(node, 0), graph.given(node, 1)
    if len(weights.shape) != 2:
        return f"its weights have shape {list(weights.shape)}; they must be [outputs, inputs]"
    inputs = weights.shape[1]
    if math.prod(data.shape) % inputs:
        return f"its input has {math.prod(data.shape)} values; it must be a multiple of the weights' {inputs}"
    if node["keep_num_dims"] and data.shape[-1] != inputs:
        return f"its input's last extent is {data.shape[-1]}; the weights read {inputs}"
    return None


def _products_in_range(graph: Graph, node: Node) -> str | None:
    """Check that the product of accumulator and factor fits int32: LiteRT casts this double to int32 before it
    clamps."""
    weights, bias = graph.given(node, 1), graph.operand(node, 2)
    assert weights.data is not None and weights.quant is not None
    factors = np.asarray(of_convolution(0, 1)(graph, node))
    most = 255.0 * np.abs(weights.data.astype(np.int16) - weights.quant.zero_points[0]).sum(axis=1, dtype=np.int64)
    if bias is not None and bias.data is not None:
        most = most + np.abs(bias.data.reshape(-1).astype(np.int64))
    largest = float((np.minimum(most, 2.0**31) * factors).max())
    if largest < MOST_PRODUCT:
        return None
    return (
        f"its accumulator times its rescaling factor may be {largest:.6g}, which LiteRT casts to int32 as it is; "
        "it must stay below 2^31"
    )


MOST_PRODUCT = 2.0**31 - 1

_CONV_LIMITS = (
    rank(0, 4, 4),
    window_numbers(),
    rescales(of_convolution(0, 1)),
    fused_activation(),
)

CONV_2D = Op(
    "conv_2d",
    operands=(INPUT, Operand(Role.WEIGHT, "weights"), Operand(Role.BIAS, "bias", optional=True)),
    shape=_conv_shape,
    kernels=("conv_2d_s8", "conv_2d_1x1_s8"),
    options="Conv2DOptions",
    attributes=(PADDING, *STRIDES, *DILATIONS, ACTIVATION),
    limits=(*_CONV_LIMITS, limit("input channels a multiple of the weights' (grouped convolution)", _groups)),
    version=3,
    unsigned=True,
    doc="Convolution, any kernel, stride, dilation, padding and number of groups; weights OHWI.",
)

DEPTHWISE_CONV_2D = Op(
    "depthwise_conv_2d",
    operands=(INPUT, Operand(Role.WEIGHT, "weights", channel_axis=3), CONV_2D.operands[2]),
    shape=_conv_shape,
    kernels=("depthwise_conv_2d_s8",),
    options="DepthwiseConv2DOptions",
    attributes=(PADDING, *STRIDES, *DILATIONS, ACTIVATION, Attribute("depth_multiplier", "depthMultiplier", 1)),
    limits=(
        *_CONV_LIMITS,
        limit("output channels a multiple of the input's", _depth_multiplier),
        limit(
            f"with uint8 weights a kernel over at most {LARGEST_WINDOW_WORD // MOST_PARTS_OF_WEIGHTS} rows",
            _rows_of_split_weights,
        ),
    ),
    version=3,
    unsigned=True,
    doc="Depthwise convolution, any kernel, stride, dilation, padding and depth multiplier; weights 1HWO.",
)

FULLY_CONNECTED = Op(
    "fully_connected",
    operands=CONV_2D.operands,
    shape=_fully_connected_shape,
    kernels=("conv_2d_1x1_s8",),
    attributes=(
        ACTIVATION,
        Attribute("keep_num_dims", "keepNumDims", False),
        Attribute("weights_format", "weightsFormat", "DEFAULT", {0: "DEFAULT", 1: "SHUFFLED4x16INT8"}),
    ),
    limits=(
        rescales(of_convolution(0, 1)),
        fused_activation(),
        attr_among("weights_format", "DEFAULT"),
        limit("input values a multiple of the weights' inputs", _fully_connected_inputs),
        limit("accumulators that stay below 2^31 when they are rescaled", _products_in_range),
        limit("rescaling factors that 51 bits hold well enough to round as LiteRT does", fitted_for_single_rounding),
    ),
    version=4,
    unsigned=True,
    doc="Fully connected layer; weights [outputs, inputs].",
)

OPS = (CONV_2D, DEPTHWISE_CONV_2D, FULLY_CONNECTED)
