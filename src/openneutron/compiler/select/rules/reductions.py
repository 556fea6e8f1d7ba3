# SPDX-License-Identifier: BSD-3-Clause
"""Select kernel calls for pools, reductions, softmax, normalizations and other operators over lines of channels."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from openneutron.compiler.select.calls import (
    Extents,
    KernelCall,
    View,
    call_on_whole,
    dense_pitches,
    elements,
    extents_of,
    kernel_of,
    quant_of,
    selects,
)
from openneutron.compiler.select.needs import row_major
from openneutron.compiler.select.rules import elementwise
from openneutron.compiler.select.rules.conv import ROUNDED_ONCE, clamp_of, convolution
from openneutron.compiler.select.tables import Ints, doubling_high_mul, rounding_shift_right
from openneutron.ir import DType, Graph, Node, Tensor
from openneutron.ops.conv import explicit_padding
from openneutron.ops.reductions import (
    INTEGER_BITS,
    WIDE,
    WindowRun,
    coefficients,
    difference_factor,
    reduced_axes,
    rounds_halves,
    runs_of_axes,
    scaled_epsilon,
    sum_singles,
    window_runs,
)
from openneutron.ops.rescaling import INT8_MIN, STORED_BOUNDS, mean_multiplier, quantize_multiplier, reciprocal


@selects("layer_norm", "group_norm")
def normalization(graph: Graph, node: Node) -> list[KernelCall]:
    """Select layer_norm_s8, layer_norm_s16, group_norm_s8 or group_norm_s16."""
    source = graph.given(node, 0)
    affine, epsilon = coefficients(graph, node), scaled_epsilon(graph, node)
    params = {
        "input_zero_point": quant_of(source).zero_point,
        "epsilon_low": epsilon & 0xFFFFFFFF,
        "epsilon_high": epsilon >> 32,
        "shift": affine.shift,
    }
    if node.op == "layer_norm":
        params |= {"channels": source.shape[-1], "centred": int(node["centred"])}
    else:
        params["group_channels"] = source.shape[-1] // node["groups"]
    low = (affine.offsets & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    table = np.stack([affine.factors.astype(np.int32), low, (affine.offsets >> 32).astype(np.int32)], axis=1)
    views = {"input": elements(source), "output": elements(graph[node.name])}
    return [KernelCall(kernel_of(node.op, source.dtype), node.name, views, params, {"coefficients": table})]


@selects("average_pool_2d", "max_pool_2d")
def pool(graph: Graph, node: Node) -> list[KernelCall]:
    """Select the pool kernel of the operator and type. For uint8 averages with a window of an even number of
    elements, select depthwise_conv_2d_s8 (``unsigned_average``)."""
    source, result = graph.given(node, 0), graph[node.name]
    _, height, width, _ = source.shape
    top, _, left, _ = explicit_padding(node, height, width, node["kernel_h"], node["kernel_w"])
    low, high = clamp = clamp_of(node, result)
    if node.op == "average_pool_2d" and rounds_halves(graph, node):
        return unsigned_average(graph, node, clamp)
    params = {name: node[name] for name in ("kernel_h", "kernel_w", "stride_h", "stride_w")}
    params |= {"pad_top": top, "pad_left": left, "clamp_min": low, "clamp_max": high}
    views = {"input": elements(source), "output": elements(result)}
    return [KernelCall(kernel_of(node.op, source.dtype), node.name, views, params)]


@selects("mean")
def mean(graph: Graph, node: Node) -> list[KernelCall]:
    """Select mean_s8 or mean_s16. The reduced axes form at most two runs of neighbouring axes, and so do the other axes."""
    source, result = graph.given(node, 0), graph[node.name]
    axes = reduced_axes(graph, node)
    count = math.prod(source.shape[axis] for axis in axes)
    multiplier, shift = mean_multiplier(quant_of(source).scale, quant_of(result).scale, count)
    low, high = STORED_BOUNDS[source.dtype]
    params = {
        "input_zero_point": quant_of(source).zero_point,
        "weight": 1,
        "output_multiplier": multiplier,
        "output_shift": shift,
        "output_zero_point": quant_of(result).zero_point,
        "clamp_min": low,
        "clamp_max": high,
    }
    if source.dtype is DType.INT16:
        params = {name: params[name] for name in ("output_multiplier", "output_shift", "clamp_min", "clamp_max")}
    return [KernelCall(kernel_of("mean", source.dtype), node.name, _reduced_views(source, result, axes), params)]


@selects("sum")
def sum_of_elements(graph: Graph, node: Node) -> list[KernelCall]:
    """Select sum_s8 or sum_s16, over axes with the same limit as those of ``mean``."""
    source, result = graph.given(node, 0), graph[node.name]
    scale, bias = (int(single.view(np.int32)) for single in sum_singles(graph, node))
    params = {"scale": scale, "bias": bias, "output_zero_point": quant_of(result).zero_point}
    if source.dtype is DType.INT16:
        params = {"scale": scale}
    views = _reduced_views(source, result, reduced_axes(graph, node))
    return [KernelCall(kernel_of("sum", source.dtype), node.name, views, params)]


@selects("reduce_max", "reduce_min", "reduce_any", "reduce_all")
def reduce_max(graph: Graph, node: Node) -> list[KernelCall]:
    """Select reduce_max_s8 or reduce_max_s16, over axes with the same limit as those of ``mean``. Booleans are 0 and 1."""
    source = graph.given(node, 0)
    views = _reduced_views(source, graph[node.name], reduced_axes(graph, node))
    smaller = int(node.op in ("reduce_min", "reduce_all"))
    return [KernelCall(kernel_of("reduce_max", source.dtype), node.name, views, {"smaller": smaller})]


def _reduced_views(source: Tensor, result: Tensor, axes: tuple[int, ...]) -> dict[str, View]:
    """Return the views of the input and the output of a reduction. The reduced axes are the rows and columns of both
    views; the other axes are the batches and channels."""
    size = source.dtype.size_bytes
    if len(source.shape) == 4 and axes == (1, 2):
        count, _, _, inner = source.shape
        return {"input": elements(source), "output": _dense((count, 1, 1, inner), result)}
    pitches, single = row_major(source.shape, size), (1, size)
    averaged: list[_Run] = []
    kept: list[_Run] = []
    for reduced, axes_of_run in runs_of_axes(source.shape, axes):
        extent = math.prod(source.shape[axis] for axis in axes_of_run)
        (averaged if reduced else kept).append((extent, pitches[axes_of_run[-1]]))
    assert len(averaged) <= 2 and len(kept) <= 2
    rows, cols = [single] * (2 - len(averaged)) + averaged
    if len(kept) == 1 and kept[0][1] != size:
        kept.append(single)
    batches, channels = [single] * (2 - len(kept)) + kept
    extents: Extents = (batches[0], rows[0], cols[0], channels[0])
    return {
        "input": View(source.name, extents, (batches[1], rows[1], cols[1], channels[1]), element_bytes=size),
        "output": _dense((batches[0], 1, 1, channels[0]), result),
    }


def _dense(extents: Extents, tensor: Tensor) -> View:
    """Return the view of a dense tensor by elements with these extents."""
    size = tensor.dtype.size_bytes
    return View(tensor.name, extents, dense_pitches(extents, size), element_bytes=size)


_Run = tuple[int, int]
"""A run of neighbouring axes that one pitch steps through: the number of its elements, and the pitch in bytes."""


def unsigned_average(graph: Graph, node: Node, clamp: tuple[int, int]) -> list[KernelCall]:
    """Select depthwise_conv_2d_s8 for each part of the output whose windows have one shape.

    LiteRT's int8 kernel rounds halves away from 0, its uint8 kernel rounds them up (reference/integer_ops/pooling.h,
    reference/pooling.h). The results differ where a window has an even number of elements. For such windows a depthwise
    convolution with weights of 1 adds the stored values, which are not negative, and multiplies the sum by 1 / count. Its
    single rounding rounds halves up.
    """
    rows, columns = window_runs(graph, node)
    return [_part(graph, node, down, across, clamp) for down in rows for across in columns]


def _part(graph: Graph, node: Node, rows: WindowRun, columns: WindowRun, clamp: tuple[int, int]) -> KernelCall:
    source, result = graph.given(node, 0), graph[node.name]
    stride = node["stride_h"], node["stride_w"]
    read = (rows.count - 1) * stride[0] + rows.size, (columns.count - 1) * stride[1] + columns.size
    return convolution(
        "depthwise_conv_2d_s8",
        node,
        {
            "input": _window(source.name, source.shape, (rows.begin, columns.begin), read),
            "output": _window(result.name, result.shape, (rows.first, columns.first), (rows.count, columns.count)),
        },
        np.ones((source.shape[3], rows.size, columns.size, 1), np.int8),
        None,
        reciprocal(rows.size * columns.size),
        (INT8_MIN, INT8_MIN),
        clamp,
        groups=source.shape[3],
        stride=stride,
        rounding=ROUNDED_ONCE,
    )


def _window(name: str, shape: tuple[int, ...], first: tuple[int, int], size: tuple[int, int]) -> View:
    """Return the view of the part of an image that begins at row and column ``first`` and has ``size`` rows and
    columns."""
    batches, _, _, channels = shape
    pitches = dense_pitches(extents_of(shape))
    offset = first[0] * pitches[1] + first[1] * pitches[2]
    return View(name, (batches, *size, channels), pitches, offset)


_SUM_INTEGER_BITS = 12
"""The integer bits of the sum of exponentials: kAccumulationIntegerBits of LiteRT's reference/softmax.h."""

_ONE = 2**31 - 1
"""The largest int32 with 31 fractional bits, which stands in for 1."""

_STEEPEST = 2.0**30 - 1.0
"""From this factor on, even a difference of 1 has an exponential below exp(-15), which changes no result."""


@selects("softmax", "softmax_rescaled")
def softmax(graph: Graph, node: Node) -> list[KernelCall]:
    """Select softmax_s8 with a table of exponentials of differences, or softmax_s16.

    For ``softmax_rescaled``, softmax_s8 also requantizes to the scale of the result.
    """
    if elementwise.is_wide(graph, node):
        return elementwise.softmax(graph, node)
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
    """Select log_softmax_s8 with a table. For each difference from the largest value, the table has the rescaled
    difference and its exponential, in the fixed point of LiteRT's sum.

    The table has all differences that LiteRT's fixed point can hold. Larger differences have the result -128. LiteRT
    also leaves out differences whose result does not fit its 5 integer bits; their result is -128 here as well.
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
    """Return exp(-beta * scale * d) for d = 0, 1, 2 ..., with 31 fractional bits, up to the last one that can change a result.

    An exponential below half a unit of the sum does not change the sum. It does not change an output either: its product with a
    number of at most 1 is shifted right by 23 bits or more.
    """
    values = _exp_on_negative_values(_rescaled_differences(scale, beta))
    count = int(np.flatnonzero(rounding_shift_right(values, _SUM_INTEGER_BITS))[-1]) + 1
    return values[:count].astype(np.int32)


def _rescaled_differences(scale: float, beta: float) -> Ints:
    """Return -beta * scale * d for d = 0, 1, 2 ..., with 26 fractional bits, as long as the number fits 5 integer bits.

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
    """Return exp(x) with 31 fractional bits for x <= 0 with 26 fractional bits, as gemmlowp's exp_on_negative_values.

    The result is a Taylor series around -1/8, times powers of e for the higher bits of x.
    """
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
