# SPDX-License-Identifier: BSD-3-Clause
"""Pools and reductions as kernel calls."""

from __future__ import annotations

import math

from openneutron.compiler.select.boxes import row_major
from openneutron.compiler.select.calls import Extents, KernelCall, View, selects, whole
from openneutron.compiler.select.rules.unsigned_pool import unsigned_average
from openneutron.ir import Graph, Node, Tensor
from openneutron.ops.conv import explicit_padding
from openneutron.ops.fixed_point import quantize_multiplier
from openneutron.ops.pool import reduced_axes, rounds_halves, runs_of_axes
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
