# SPDX-License-Identifier: BSD-3-Clause
"""Pools and reductions as kernel calls."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from openneutron.compiler.select.calls import (
    Extents,
    KernelCall,
    View,
    dense_pitches,
    extents_of,
    row_major,
    selects,
    whole,
)
from openneutron.compiler.select.constants import Constant, requantization
from openneutron.ir import Graph, Node, Tensor
from openneutron.ops.conv import explicit_padding
from openneutron.ops.fixed_point import quantize_multiplier, reciprocal
from openneutron.ops.pool import WindowRun, reduced_axes, rounds_halves, runs_of_axes, window_runs
from openneutron.ops.rescaling import INT8_MAX, INT8_MIN, activation_range


@selects("average_pool_2d", "max_pool_2d")
def pool(graph: Graph, node: Node) -> list[KernelCall]:
    """Select average_pool_2d_s8 or max_pool_2d_s8; depthwise_conv_2d_s8 for averages of uint8 with halves."""
    source, result = graph.operand(node, 0), graph[node.outputs[0]]
    assert source is not None and result.quant is not None
    _, height, width, _ = source.shape
    top, _, left, _ = explicit_padding(node, height, width, node["kernel_h"], node["kernel_w"])
    low, high = activation_range(node.attrs.get("activation", "NONE"), result.quant.scale, result.quant.zero_point)
    if node.op == "average_pool_2d" and rounds_halves(graph, node):
        return unsigned_average(graph, node, low, high)
    params = {
        "kernel_h": node["kernel_h"],
        "kernel_w": node["kernel_w"],
        "stride_h": node["stride_h"],
        "stride_w": node["stride_w"],
        "pad_top": top,
        "pad_left": left,
        "clamp_min": low,
        "clamp_max": high,
    }
    return [KernelCall(f"{node.op}_s8", node.name, {"input": whole(source), "output": whole(result)}, params)]


@selects("mean")
def mean(graph: Graph, node: Node) -> list[KernelCall]:
    """mean_s8 over any axes that leave at most two runs of neighbours and take at most two."""
    source, result = _reduced(graph, node)
    assert source.quant is not None and result.quant is not None
    axes = reduced_axes(graph, node)
    count = math.prod(source.shape[axis] for axis in axes)
    multiplier, shift = mean_multiplier(source.quant.scale, result.quant.scale, count)
    params = {
        "input_zero_point": source.quant.zero_point,
        "output_multiplier": multiplier,
        "output_shift": shift,
        "output_zero_point": result.quant.zero_point,
        "clamp_min": INT8_MIN,
        "clamp_max": INT8_MAX,
    }
    taken, left = _reduced_views(source, result, axes)
    return [KernelCall("mean_s8", node.name, {"input": taken, "output": left}, params)]


@selects("reduce_max", "reduce_min", "reduce_any", "reduce_all")
def reduce_max(graph: Graph, node: Node) -> list[KernelCall]:
    """Select reduce_max_s8 over the same axes as the mean; booleans are 0 and 1."""
    source, result = _reduced(graph, node)
    taken, left = _reduced_views(source, result, reduced_axes(graph, node))
    params = {"smaller": int(node.op in ("reduce_min", "reduce_all"))}
    return [KernelCall("reduce_max_s8", node.name, {"input": taken, "output": left}, params)]


def _reduced(graph: Graph, node: Node) -> tuple[Tensor, Tensor]:
    source = graph.operand(node, 0)
    assert source is not None
    return source, graph[node.outputs[0]]


def mean_multiplier(input_scale: float, output_scale: float, count: int) -> tuple[int, int]:
    """input scale / (output scale * count) as QuantizedMeanOrSum of LiteRT's reference/reduce.h makes it.

    The count divides the multiplier after it has been shifted left by as many bits as the count has behind its first,
    as far as the shift allows.
    """
    multiplier, shift = quantize_multiplier(input_scale / output_scale)
    spare = min(count.bit_length() - 1, 32, 31 + shift)
    return (multiplier << spare) // count, shift - spare


def _reduced_views(source: Tensor, result: Tensor, axes: tuple[int, ...]) -> tuple[View, View]:
    """Reduced axes as rows and columns, the others as batches and channels."""
    if len(source.shape) == 4 and axes == (1, 2):
        count, _, _, inner = source.shape
        return whole(source), View(result.name, (count, 1, 1, inner), (inner, inner, inner, 1))
    pitches = row_major(source.shape)
    averaged: list[_Run] = []
    kept: list[_Run] = []
    for reduced, axes_of_run in runs_of_axes(source.shape, axes):
        extent = math.prod(source.shape[axis] for axis in axes_of_run)
        (averaged if reduced else kept).append((extent, pitches[axes_of_run[-1]]))
    assert len(averaged) <= 2 and len(kept) <= 2
    rows, cols = [_ONE] * (2 - len(averaged)) + averaged
    if len(kept) == 1 and kept[0][1] != 1:
        kept.append(_ONE)
    batches, channels = [_ONE] * (2 - len(kept)) + kept
    extents: Extents = (batches[0], rows[0], cols[0], channels[0])
    output: Extents = (batches[0], 1, 1, channels[0])
    return (
        View(source.name, extents, (batches[1], rows[1], cols[1], channels[1])),
        View(result.name, output, (channels[0], channels[0], channels[0], 1)),
    )


_Run = tuple[int, int]
"""Elements, and the pitch between them."""

_ONE: _Run = (1, 1)


_LOWEST = -128


def unsigned_average(graph: Graph, node: Node, low: int, high: int) -> list[KernelCall]:
    """Select depthwise_conv_2d_s8 for each part of the output whose windows have one shape, clamped to [low, high].

    LiteRT's int8 kernel rounds halves away from 0, its uint8 kernel rounds them up (reference/integer_ops/pooling.h,
    reference/pooling.h). The results differ where a window has an even number of elements. For such windows a depthwise
    convolution with weights of 1 adds the stored values, which are not negative, and multiplies the sum by 1 / count. Its
    single rounding rounds halves up.
    """
    rows, columns = window_runs(graph, node)
    return [_part(graph, node, down, across, low, high) for down in rows for across in columns]


def _part(graph: Graph, node: Node, rows: WindowRun, columns: WindowRun, low: int, high: int) -> KernelCall:
    source, result = graph.operand(node, 0), graph[node.outputs[0]]
    assert source is not None
    channels = source.shape[3]
    stride_h, stride_w = node["stride_h"], node["stride_w"]
    weights = np.ones((channels, rows.size, columns.size, 1), np.int8)
    params = {
        "kernel_h": rows.size,
        "kernel_w": columns.size,
        "stride_h": stride_h,
        "stride_w": stride_w,
        "dilation_h": 1,
        "dilation_w": 1,
        "pad_top": 0,
        "pad_left": 0,
        "group_inputs": 1,
        "group_outputs": 1,
        "single_rounding": 1,
        "constant_channel0": 0,
        "constant_channels": channels,
        "input_zero_point": _LOWEST,
        "output_zero_point": _LOWEST,
        "clamp_min": low,
        "clamp_max": high,
    }
    count = rows.size * columns.size
    sums = np.full(channels, count, np.int64)
    constants: Mapping[str, Constant] = {
        "weights": weights,
        "requant": requantization(None, sums, _LOWEST, *reciprocal(count)),
    }
    read = (rows.count - 1) * stride_h + rows.size, (columns.count - 1) * stride_w + columns.size
    views = {
        "input": _window(source.name, source.shape, (rows.begin, columns.begin), read),
        "output": _window(result.name, result.shape, (rows.first, columns.first), (rows.count, columns.count)),
    }
    return KernelCall("depthwise_conv_2d_s8", node.name, views, params, constants)


def _window(name: str, shape: tuple[int, ...], first: tuple[int, int], size: tuple[int, int]) -> View:
    """Return the ``size`` rows and columns of an image that begin at ``first``."""
    batches, _, _, channels = shape
    pitches = dense_pitches(extents_of(shape))
    offset = first[0] * pitches[1] + first[1] * pitches[2]
    return View(name, (batches, *size, channels), pitches, offset)
