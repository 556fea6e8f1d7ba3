# SPDX-License-Identifier: BSD-3-Clause
"""Softmax and other operators over lines of channels as kernel calls."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from openneutron.compiler.select.calls import KernelCall, call_on_whole, quant_of, selects
from openneutron.compiler.select.tables import Ints, doubling_high_mul, rounding_shift_right
from openneutron.ir import Graph, Node
from openneutron.ops.rescaling import quantize_multiplier
from openneutron.ops.softmax import INTEGER_BITS, WIDE, difference_factor

_SUM_INTEGER_BITS = 12
"""Bits before the point of the sum: kAccumulationIntegerBits there."""

_ONE = 2**31 - 1
"""1 as nearly as a number with 31 fractional bits comes."""

_STEEPEST = 2.0**30 - 1.0
"""Beyond it already exp(-1 step) is below exp(-15), which changes nothing."""


@selects("softmax", "softmax_rescaled")
def softmax(graph: Graph, node: Node) -> list[KernelCall]:
    """Select softmax_s8 with the exponentials of all differences that count, and the requantization to its own scale."""
    source, result = graph.given(node, 0), graph[node.name]
    exponentials = exponentials_of_differences(quant_of(source).scale, node["beta"])
    params = {"exp_count": len(exponentials), "channels": source.shape[-1]}
    params |= dict.fromkeys(("multiplier", "shift", "output_zero_point"), 0)
    if node.op == "softmax_rescaled":
        # QUANTIZE divides float32 scales in float64 (LiteRT's quantize.cc).
        params["multiplier"], params["shift"] = quantize_multiplier(WIDE[0] / quant_of(result).scale)
        params["output_zero_point"] = quant_of(result).zero_point
    return call_on_whole("softmax_s8", graph, node, params, {"exp": exponentials})


@selects("log_softmax")
def log_softmax(graph: Graph, node: Node) -> list[KernelCall]:
    """Select log_softmax_s8 with the exponentials of all differences that LiteRT's fixed point holds, as its sum takes them,
    and these differences.

    LiteRT also leaves out differences whose result would fall below its 5 integer bits; their result is -128 here as well.
    """
    source = graph.given(node, 0)
    rescaled = _rescaled_differences(quant_of(source).scale, 1.0)
    table = np.stack([rounding_shift_right(_exp_on_negative_values(rescaled), _SUM_INTEGER_BITS), rescaled])
    params = {"table_count": len(rescaled), "channels": source.shape[-1]}
    return call_on_whole("log_softmax_s8", graph, node, params, {"table": table.astype(np.int32)})


@selects("l2_normalization")
def l2_normalization(graph: Graph, node: Node) -> list[KernelCall]:
    """Select l2_normalization_s8."""
    source = graph.given(node, 0)
    params = {"channels": source.shape[-1], "input_zero_point": quant_of(source).zero_point}
    return call_on_whole("l2_normalization_s8", graph, node, params)


def exponentials_of_differences(scale: float, beta: float) -> npt.NDArray[np.int32]:
    """Return exp(-beta * scale * d) for d = 0, 1, 2 ..., 31 fractional bits, as far as any of them changes a result.

    Below half a unit of the sum an exponential changes neither the sum nor, after its product with at most 1 is shifted
    right by 23 bits or more, an output.
    """
    values = _exp_on_negative_values(_rescaled_differences(scale, beta))
    count = int(np.flatnonzero(rounding_shift_right(values, _SUM_INTEGER_BITS))[-1]) + 1
    return values[:count].astype(np.int32)


def _rescaled_differences(scale: float, beta: float) -> Ints:
    """Return -beta * scale * d for d = 0, 1, 2 ..., 26 fractional bits, as far as 5 integer bits hold it.

    The result equals that of PreprocessSoftmaxScaling and CalculateInputRadius of LiteRT's quantization_util.cc.
    """
    real = difference_factor(scale, beta)
    assert real > 1.0, "the row's limits refuse what is less steep"
    if real >= _STEEPEST:
        return np.zeros(1, np.int64)
    multiplier, shift = quantize_multiplier(real)
    radius = ((1 << INTEGER_BITS) - 1) * 2.0 ** (31 - INTEGER_BITS) / 2.0**shift
    differences = np.arange(min(255, int(radius)) + 1, dtype=np.int64)
    return doubling_high_mul(-differences << shift, multiplier)


def _exp_on_negative_values(x: Ints) -> Ints:
    """Return exp(x) with 31 fractional bits for x <= 0 with 26 (gemmlowp's exp_on_negative_values): a Taylor series around -1/8, times powers of e for the bits above."""
    fraction_bits = 31 - INTEGER_BITS
    quarter = 1 << (fraction_bits - 2)
    within = (x & (quarter - 1)) - quarter
    result = _exp_below_one_quarter(within << INTEGER_BITS)
    remainder = within - x
    for bit, power in enumerate((1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)):
        result = np.where(remainder & (quarter << bit), doubling_high_mul(result, power), result)
    return np.where(x == 0, _ONE, result)


def _exp_below_one_quarter(x: Ints) -> Ints:
    """Return exp(x) for x in [-1/4, 0), both with 31 fractional bits."""
    center = 1895147668  # exp(-1/8)
    third = 715827883
    y = x + (1 << 28)
    y2 = doubling_high_mul(y, y)
    y3 = doubling_high_mul(y2, y)
    y4 = doubling_high_mul(y2, y2)
    rest = rounding_shift_right(doubling_high_mul(rounding_shift_right(y4, 2) + y3, third) + y2, 1)
    return center + doubling_high_mul(y + rest, center)
