# SPDX-License-Identifier: BSD-3-Clause
"""Declare convolutions, transposed convolutions, fully connected layers and matrix products, and count their
multiply-accumulates."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from openneutron.ir import DType, Graph, Node
from openneutron.ops.limits import (
    BIAS_TYPE,
    LARGEST_WINDOW_WORD,
    MOST_PARTS_OF_WEIGHTS,
    Limit,
    attr_among,
    has_wide_sums,
    limit,
    rank,
    window_numbers,
)
from openneutron.ops.rescaling import (
    MOST_WIDE_SUM,
    WIDE_SUM_EXPONENT,
    fitted_for_single_rounding,
    fused_activation,
    matmul_factor,
    of_convolution,
    of_two,
    rescales,
)
from openneutron.ops.table import (
    INPUT,
    INT8_OR_INT16,
    Attribute,
    Op,
    Operand,
    Role,
    broadcast_shape,
    constant_values,
    parameter,
    shape_given_by,
    shape_of,
)

PADDING = Attribute("padding", "padding", "VALID", {0: "SAME", 1: "VALID"})
ACTIVATION = Attribute(
    "activation", "fusedActivationFunction", "NONE", {0: "NONE", 1: "RELU", 2: "RELU_N1_TO_1", 3: "RELU6"}
)
STRIDES = (Attribute("stride_h", "strideH", 1), Attribute("stride_w", "strideW", 1))
_BIAS_TYPE = Attribute(BIAS_TYPE, "quantizedBiasType", "FLOAT32", {0: "FLOAT32", 2: "INT32", 4: "INT64"}, unstated=True)
DILATIONS = (Attribute("dilation_h", "dilationHFactor", 1), Attribute("dilation_w", "dilationWFactor", 1))

Padding = tuple[int, int, int, int]
"""The padding as numbers of rows above, rows below, columns left and columns right."""


def same_padding(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """Return the SAME padding before and after one axis. If the total is odd, the larger part is after the axis
    (LiteRT's padding.h)."""
    output = -(-size // stride)
    total = max(0, (output - 1) * stride + (kernel - 1) * dilation + 1 - size)
    return total // 2, total - total // 2


def explicit_padding(node: Node, height: int, width: int, kernel_h: int, kernel_w: int) -> Padding:
    """Return the padding of a node in numbers of rows and columns, whether its attribute is SAME, VALID or numbers."""
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
    """Return the numbers of output rows and columns of a sliding window."""
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
    """Return the reason why a kernel with uint8 weights covers too many rows, or None if it does not. The result is
    also None for weights of another type.

    The compiler may split uint8 weights into several sets (``split_weights``). Each row that the kernel covers,
    including the gaps of the dilation, then becomes up to MOST_PARTS_OF_WEIGHTS rows.
    """
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


def _largest_sums(
    graph: Graph, node: Node, weights_at: int, bias_at: int, channel_axis: int
) -> npt.NDArray[np.float64]:
    """Return, for each output channel, an upper bound of the magnitude of the accumulator: float64 [channels]."""
    weights, bias = graph.given(node, weights_at), graph.operand(node, bias_at)
    assert weights.data is not None and weights.quant is not None
    activation = 2.0**15 if graph[node.outputs[0]].dtype is DType.INT16 else 255.0
    others = tuple(axis for axis in range(weights.data.ndim) if axis != channel_axis)
    differences = np.abs(weights.data.astype(np.int16) - weights.quant.zero_points[0])
    most = np.asarray(activation * differences.sum(axis=others, dtype=np.int64))
    if bias is not None and bias.data is not None:
        most = most + np.abs(bias.data.reshape(-1).astype(np.float64))
    return most if has_wide_sums(graph, node) else np.minimum(most, 2.0**31)


def _products_in_range(graph: Graph, node: Node) -> str | None:
    """Check that accumulator times factor fits int32: LiteRT casts this double to int32 before it clamps."""
    factors = np.asarray(of_convolution(0, 1)(graph, node))
    largest = float((_largest_sums(graph, node, 1, 2, 0) * factors).max())
    if largest < MOST_PRODUCT:
        return None
    return (
        f"its accumulator times its rescaling factor may be {largest:.6g}, which LiteRT casts to int32 as it is; "
        "it must stay below 2^31"
    )


MOST_PRODUCT = 2.0**31 - 1


def _sums_in_range(data: int, weights: int, bias: int, channel_axis: int = 0) -> Limit:
    """Return the limit that int64 accumulators stay below 2^47, because LiteRT rescales only these. Accumulators of
    32 bits have no such limit, because they wrap around."""

    def rule(graph: Graph, node: Node) -> str | None:
        if not has_wide_sums(graph, node):
            return None
        largest = float(_largest_sums(graph, node, weights, bias, channel_axis).max())
        if largest < MOST_WIDE_SUM:
            return None
        return f"its accumulator may reach {largest:.6g}; with int16 activations LiteRT rescales those below 2^47"

    return limit("int16: accumulators below 2^47", rule)


def _conv_limits(data: int, weights: int, bias: int, channel_axis: int = 0) -> tuple[Limit, ...]:
    return (
        rank(data, 4, 4),
        window_numbers(),
        rescales(of_convolution(data, weights), wide=WIDE_SUM_EXPONENT),
        fused_activation(),
        _sums_in_range(data, weights, bias, channel_axis),
    )


CONV_2D = Op(
    "conv_2d",
    operands=(INPUT, Operand(Role.WEIGHT, "weights"), Operand(Role.BIAS, "bias", optional=True)),
    shape=_conv_shape,
    kernels=("conv_2d_s8", "conv_2d_1x1_s8", "conv_2d_s16"),
    types=INT8_OR_INT16,
    options="Conv2DOptions",
    attributes=(PADDING, *STRIDES, *DILATIONS, ACTIVATION, _BIAS_TYPE),
    limits=(*_conv_limits(0, 1, 2), limit("input channels a multiple of the weights' (grouped convolution)", _groups)),
    version=3,
    unsigned=True,
    doc="Convolution, any kernel, stride, dilation, padding and number of groups; weights OHWI.",
)

DEPTHWISE_CONV_2D = Op(
    "depthwise_conv_2d",
    operands=(INPUT, Operand(Role.WEIGHT, "weights", channel_axis=3), CONV_2D.operands[2]),
    shape=_conv_shape,
    kernels=("depthwise_conv_2d_s8", "mean_s8", "depthwise_conv_2d_s16"),
    types=INT8_OR_INT16,
    options="DepthwiseConv2DOptions",
    attributes=(PADDING, *STRIDES, *DILATIONS, ACTIVATION, Attribute("depth_multiplier", "depthMultiplier", 1)),
    limits=(
        *_conv_limits(0, 1, 2, 3),
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
    kernels=("conv_2d_1x1_s8", "conv_2d_s16"),
    types=INT8_OR_INT16,
    attributes=(
        ACTIVATION,
        _BIAS_TYPE,
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

RANK_OF_WEIGHTS = {"conv_2d": 4, "depthwise_conv_2d": 4, "fully_connected": 2, "batch_matmul": 2, "transpose_conv": 4}
"""The operators that multiply and accumulate, each with the smallest rank of its second operand."""


def macs(graph: Graph, node: Node) -> int:
    """Return the number of multiply-accumulates of a convolution or matrix product; 0 for other operators.

    The types of the operands do not matter: a float convolution counts too. Weights are [outputs, height, width,
    inputs] for a convolution, [1, height, width, outputs] for a depthwise convolution, and [outputs, inputs] for a
    fully connected layer, as in LiteRT.
    """
    op = node.op
    operands = [graph[name] for name in node.inputs if name is not None]
    if (
        op not in RANK_OF_WEIGHTS
        or not node.outputs
        or len(operands) < 2
        or len(operands[1].shape) < RANK_OF_WEIGHTS[op]
    ):
        return 0
    result = graph[node.outputs[0]]
    if op == "transpose_conv" and len(operands) > 2:
        # The operands are output shape, weights, input: each input value is multiplied by all weights of its channel.
        return operands[2].elements * math.prod(operands[1].shape[:3])
    factor = operands[1].shape
    if op == "conv_2d":
        return result.elements * math.prod(factor[1:])
    if op == "depthwise_conv_2d":
        return result.elements * math.prod(factor[1:3])
    if op == "fully_connected":
        return result.elements * factor[-1]
    return result.elements * operands[0].shape[-2 if node["adj_x"] else -1]


OUTPUT_SHAPE, WEIGHTS, DATA, BIAS = range(4)
"""The indices of the operands."""

Shape = tuple[int, ...]


def cropped(node: Node, data: Shape, weights: Shape, result: Shape) -> Padding:
    """Return how far the windows of a transposed convolution reach beyond its result: (rows above, rows below,
    columns left, columns right). These rows and columns are cropped.

    A number is negative if the result is larger than what the windows cover. If SAME crops an odd number of rows or
    columns, the additional one is at the end (ComputePaddingHeightWidth of LiteRT's padding.h).
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
    weights, data = graph.given(node, WEIGHTS), graph.given(node, DATA)
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
    kernels=("conv_2d_s8", "conv_2d_1x1_s8", "depthwise_conv_2d_s8", "conv_2d_s16", "depthwise_conv_2d_s16"),
    types=INT8_OR_INT16,
    attributes=(PADDING, *STRIDES, ACTIVATION, _BIAS_TYPE),
    limits=(
        *_conv_limits(DATA, WEIGHTS, BIAS),
        limit("output rows and columns from which a convolution would make the input's", _fitting),
    ),
    version=4,
    unsigned=True,
    doc=(
        "Transposed convolution, any kernel, stride and padding; weights OHWI. A convolution for each phase of the strides: "
        "no zero that the weights hold in whole rows, columns or groups is multiplied."
    ),
)


MOST_DEPTH = 2**15
"""The largest number of products whose sum fits the kernel's 32-bit accumulator for all values. The factors of a
product are differences of two stored values."""


def matrices(graph: Graph, node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of both operands as [..., rows, depth] and [..., depth, columns]."""
    a, b = graph.given(node, 0), graph.given(node, 1)
    return _turned(a.shape, node["adj_x"]), _turned(b.shape, node["adj_y"])


def _turned(shape: tuple[int, ...], turned: bool) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2]) if turned else shape


def _matmul_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    a, b = matrices(graph, node)
    batches = broadcast_shape(a[:-2], b[:-2])
    assert batches is not None
    return ((*batches, a[-2], b[-1]),)


def _multiply(graph: Graph, node: Node) -> str | None:
    a, b = matrices(graph, node)
    if a[-1] != b[-2] or broadcast_shape(a[:-2], b[:-2]) is None:
        return f"its matrices are {list(a)} and {list(b)}, which do not multiply"
    if a[-1] > MOST_DEPTH:
        return f"it adds {a[-1]} products; at most {MOST_DEPTH}"
    return None


BATCH_MATMUL = Op(
    "batch_matmul",
    operands=(Operand(Role.ACTIVATION, "a"), Operand(Role.ACTIVATION, "b")),
    shape=_matmul_shape,
    kernels=("batch_matmul_s8", "batch_matmul_s16"),
    types=INT8_OR_INT16,
    options="BatchMatMulOptions",
    attributes=(Attribute("adj_x", "adjX", False), Attribute("adj_y", "adjY", False)),
    limits=(
        rank(0, 2, 5),
        rank(1, 2, 5),
        limit(f"matrices that multiply, batches that broadcast, a depth of at most {MOST_DEPTH}", _multiply),
        rescales(of_two(matmul_factor), wide=WIDE_SUM_EXPONENT),
    ),
    version=2,
    doc="Products of matrices, either of them transposed; batches broadcast.",
)

OPS = (CONV_2D, DEPTHWISE_CONV_2D, FULLY_CONNECTED, TRANSPOSE_CONV, BATCH_MATMUL)
