# SPDX-License-Identifier: BSD-3-Clause
"""Average pools of uint8 models as kernel calls.

LiteRT's int8 kernel rounds halves away from 0, its uint8 kernel rounds them up (reference/integer_ops/pooling.h,
reference/pooling.h). The results differ where a window has an even number of elements. For such windows a depthwise
convolution with weights of 1 adds the stored values, which are not negative, and multiplies the sum by 1 / count. Its
single rounding rounds halves up.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from openneutron.compiler.select.calls import KernelCall, View, dense_pitches, extents_of
from openneutron.compiler.select.constants import Constant
from openneutron.compiler.select.requantization import requantization
from openneutron.ir import Graph, Node
from openneutron.ops.fixed_point import reciprocal
from openneutron.ops.pool import WindowRun, window_runs

_LOWEST = -128


def unsigned_average(graph: Graph, node: Node, low: int, high: int) -> list[KernelCall]:
    """Select depthwise_conv_2d_s8 for each part of the output whose windows have one shape, clamped to [low, high]."""
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
