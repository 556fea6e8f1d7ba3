# SPDX-License-Identifier: BSD-3-Clause
"""Limits of element-by-element operators on int16 activations, and the factors of LiteRT's fixed point that they bound."""

from __future__ import annotations

import math

import numpy as np

from openneutron.ir import DType, Graph, Node, QuantParams
from openneutron.ops.limits import limit
from openneutron.ops.rescaling import quant_of, result_quant
from openneutron.ops.table import Parts


def _is_power_of_two(scale: float) -> bool:
    """Return whether LiteRT takes the scale for a power of two (CheckedLog2 of kernel_util.cc)."""
    exponent = math.log2(scale)
    return abs(exponent - round(exponent)) < 1e-3


def _general_scales(graph: Graph, node: Node) -> str | None:
    if graph[node.name].dtype is not DType.INT16 or not node.attrs.get("pot_scale_int16", True):
        return None
    quants = quant_of(graph, node, 0), quant_of(graph, node, 1), result_quant(graph, node)
    if not all(_is_power_of_two(quant.scale) for quant in quants):
        return None
    return (
        "its scales are powers of two and its option pot_scale_int16 is true, for which LiteRT has another arithmetic"
    )


GENERAL_SCALES = limit("int16: option pot_scale_int16 false, or a scale that is no power of two", _general_scales)


def _narrow_slopes(graph: Graph, node: Node) -> str | None:
    source, slopes, result = graph.given(node, 0), graph.given(node, 1), graph[node.name]
    if slopes.dtype is not DType.INT8:
        return f"its slopes '{slopes.name}' are {slopes.dtype}; LiteRT has int8 slopes alone"
    if source.dtype is result.dtype:
        return None
    return f"its input '{source.name}' is {source.dtype}, its output {result.dtype}; they must have one type"


INT8_SLOPES = limit("int8 slopes, output of the input's type", _narrow_slopes)


def has_falling_slope(graph: Graph, node: Node) -> bool:
    """Return whether a LEAKY_RELU on int16 has a slope below 0, so that it is composed."""
    return graph[node.name].dtype is DType.INT16 and node["alpha"] < 0


def magnitude_of_rising_slope(parts: Parts, graph: Graph, node: Node) -> None:
    """Compose LEAKY_RELU with a negative slope as the magnitude of LEAKY_RELU with the opposite slope.

    LiteRT rescales the magnitude of negative values and negates the result. One call with a negative factor would round halves in the
    other direction. A magnitude at one scale changes no positive value and rounds nothing.
    """
    (source, result) = (str(node.inputs[0]), node.name)
    rising = parts.new(graph[result].shape, DType.INT16, graph[result].quant)
    parts.add("abs", [parts.add("leaky_relu", [source], rising, alpha=-node["alpha"])], result)


def is_wide(graph: Graph, node: Node) -> bool:
    """Return whether a node's output is int16."""
    return graph[node.name].dtype is DType.INT16


def wrapped_negative(parts: Parts, graph: Graph, node: Node) -> None:
    """Compose NEG of a saturating subtraction from 0; the lowest value stays as it is, since LiteRT's NEG wraps around."""
    (source, result) = (str(node.inputs[0]), node.name)
    quant, shape = graph[source].quant, graph[source].shape
    zero, lowest = (parts.constant(np.full(1, value, np.int16), quant) for value in (0, -(2**15)))
    difference = parts.new(shape, DType.INT16, quant)
    parts.add("sub", [zero, source], difference, activation="NONE", pot_scale_int16=False)
    is_lowest = parts.add("less_equal", [source, lowest], parts.new(shape, DType.BOOL, None))
    parts.add("select_v2", [is_lowest, source, difference], result)


def narrowing_reason(graph: Graph, node: Node) -> str | None:
    """Return the reason why LiteRT has no QUANTIZE between these types, or None."""
    source, result = graph.given(node, 0), graph[node.name]
    if (source.dtype, result.dtype) != (DType.INT16, DType.UINT8):
        return None
    return f"input '{source.name}' is int16, its output uint8; LiteRT has QUANTIZE from int16 to int8 and int16 alone"


def _converted(graph: Graph, node: Node) -> str | None:
    # The graphs of partitions have int8 in the place of uint8; only QUANTIZE between the two is left.
    source, result = graph.given(node, 0), graph[node.name]
    if (source.dtype, result.dtype) == (DType.UINT8, DType.INT16):
        return f"input '{source.name}' is uint8, its output int16; kernels convert int8 to int16 alone"
    return narrowing_reason(graph, node)


CONVERTED = limit("types among int8 and uint8, or among int8 and int16", _converted)


def wide_sigmoid_factor(source: QuantParams, doubled: bool) -> tuple[int, int]:
    """Return the multiplier and the right shift that bring an int16 value to 3/4 of 2^-14 (TanhPrepare, SigmoidPrepare of activations.cc).

    A scale of 2^-12, and for TANH (``doubled``) of 2^-11, is LiteRT's case of powers of two.
    """
    places = 12 + round(math.log2(source.scale))
    if _is_power_of_two(source.scale) and (places == 0 or (doubled and places == 1)):
        return 3 << places, 0
    multiplier, shift = source.scale * 4096.0 * 3.0, 0
    while multiplier <= 32767.0 / 2.0 and shift <= 30:
        multiplier, shift = multiplier * 2.0, shift + 1
    return int(multiplier), shift


MOST_SIGMOID_SCALE = 16 / 3
"""The input scale from which on LiteRT's LOGISTIC and TANH overflow 32 bits."""


def _sigmoid_scale(graph: Graph, node: Node) -> str | None:
    scale = quant_of(graph, node, 0).scale
    if graph.given(node, 0).dtype is not DType.INT16 or scale < MOST_SIGMOID_SCALE:
        return None
    return f"its input has scale {scale:.6g}; it must be below 16/3, or LiteRT's product overflows 32 bits"


SIGMOID_SCALE = limit("int16: input scale below 16/3", _sigmoid_scale)


def _exponential(graph: Graph, node: Node) -> str | None:
    source, result = quant_of(graph, node, 0), result_quant(graph, node)
    largest = source.scale * 2.0**15 - math.log(result.scale)
    if graph.given(node, 0).dtype is not DType.INT16 or largest < LARGEST_EXPONENT:
        return None
    return (
        f"its output has scale {result.scale:.6g}, its input {source.scale:.6g}; its largest result over the output's scale is "
        f"exp({largest:.6g}), and LiteRT's float32 holds exp({LARGEST_EXPONENT})"
    )


LARGEST_EXPONENT = 87
"""An exponential that float32 holds, and twice that exponential."""

EXPONENTIAL = limit(
    f"int16: exp of the largest input over the output's scale below exp({LARGEST_EXPONENT})", _exponential
)
