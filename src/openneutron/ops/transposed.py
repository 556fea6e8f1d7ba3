# SPDX-License-Identifier: BSD-3-Clause
"""Transposed convolution."""

from __future__ import annotations

from openneutron.ir import Graph, Node
from openneutron.ops.conv import ACTIVATION, PADDING, STRIDES, Padding
from openneutron.ops.limits import (
    limit,
    rank,
    window_numbers,
)
from openneutron.ops.rescaling import fused_activation, of_convolution, rescales
from openneutron.ops.table import Op, Operand, Role, constant_values, parameter, shape_given_by

OUTPUT_SHAPE, WEIGHTS, INPUT, BIAS = range(4)
"""The operands' places."""

Shape = tuple[int, ...]


def cropped(node: Node, data: Shape, weights: Shape, result: Shape) -> Padding:
    """Return the rows above and below and the columns left and right by which all windows together exceed the result.

    Below 0 where the result goes further than the windows. Under SAME the odd row is left out behind
    (ComputePaddingHeightWidth of LiteRT's padding.h).
    """
    if not isinstance(node["padding"], str):
        top, bottom, left, right = node["padding"]
        return (top, bottom, left, right)
    sides = []
    for axis, stride in ((1, node["stride_h"]), (2, node["stride_w"])):
        surplus = (data[axis] - 1) * stride + weights[axis] - result[axis]
        before = max(0, surplus) // 2 if node["padding"] == "SAME" else 0
        sides += [before, surplus - before]
    return (sides[0], sides[1], sides[2], sides[3])


def _fitting(graph: Graph, node: Node) -> str | None:
    shape = constant_values(graph, node, OUTPUT_SHAPE)
    weights, data = graph.given(node, WEIGHTS), graph.given(node, INPUT)
    if len(weights.shape) != 4 or weights.shape[3] != data.shape[3]:
        return f"its weights have shape {list(weights.shape)}; they must be [output, height, width, {data.shape[3]}]"
    if len(shape) != 4 or shape[0] != data.shape[0] or shape[3] != weights.shape[0]:
        return f"its output shape is {list(shape)}; it must be [{data.shape[0]}, height, width, {weights.shape[0]}]"
    for axis, what in ((1, "rows"), (2, "columns")):
        stride = node["stride_h" if axis == 1 else "stride_w"]
        least = (data.shape[axis] - 1) * stride + (1 if node["padding"] == "SAME" else weights.shape[axis])
        if not least <= shape[axis] < least + stride:
            return (
                f"it makes {shape[axis]} of {data.shape[axis]} {what}; under {node['padding']} padding it must be "
                f"{least} to {least + stride - 1}"
            )
    return None


TRANSPOSE_CONV = Op(
    "transpose_conv",
    operands=(
        parameter("output shape"),
        Operand(Role.WEIGHT, "weights"),
        Operand(Role.ACTIVATION, "input"),
        Operand(Role.BIAS, "bias", optional=True),
    ),
    shape=shape_given_by(OUTPUT_SHAPE),
    kernels=("conv_2d_s8", "conv_2d_1x1_s8", "depthwise_conv_2d_s8"),
    attributes=(PADDING, *STRIDES, ACTIVATION),
    limits=(
        rank(INPUT, 4, 4),
        window_numbers(),
        rescales(of_convolution(INPUT, WEIGHTS)),
        fused_activation(),
        limit("output rows and columns from which a convolution would make the input's", _fitting),
    ),
    version=4,
    unsigned=True,
    doc=(
        "Transposed convolution, any kernel, stride and padding; weights OHWI. A convolution for each phase of the strides: "
        "no zero that the weights hold in whole rows, columns or groups is multiplied."
    ),
)

OPS = (TRANSPOSE_CONV,)
