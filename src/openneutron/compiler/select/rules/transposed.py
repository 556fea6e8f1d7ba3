# SPDX-License-Identifier: BSD-3-Clause
"""Transposed convolutions as kernel calls: one ordinary convolution for each phase of the strides.

Output row o takes the taps i with o + cropped - i a multiple of the stride, and the input rows (o + cropped - i) / stride. For
the outputs of one phase, o = phase + stride * m, those are the same taps each time, and input rows one apart: a convolution
of stride 1 with every stride-th tap in reverse order, which writes to every stride-th row. The same holds for columns. Sums
are the same as in LiteRT's scattering kernel (reference/integer_ops/transpose_conv.h), since they are taken modulo 2^32.

Zeros cost nothing where they fill whole rows or columns of the weights (a dilated kernel, or one that was enlarged so that
SAME crops what it should), or whole groups (a grouped transposed convolution, which LiteRT does not have).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from openneutron.compiler.select.calls import KernelCall, View, dense_pitches, extents_of, selects, whole
from openneutron.compiler.select.rules.conv import clamp_of, convolution, zero_points
from openneutron.ir import Graph, Node, Tensor
from openneutron.ops.rescaling import of_convolution, quantize_multipliers
from openneutron.ops.transposed import BIAS, INPUT, WEIGHTS, cropped

Weights = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Phase:
    """One axis of the convolution that computes the outputs ``first``, ``first + stride`` ... (``count`` of them).

    ``taps`` are the weights' rows (or columns) in the convolution's order; none where no weight reaches these outputs.
    """

    first: int
    count: int
    taps: tuple[int, ...]
    dilation: int = 1
    pad: int = 0

    @property
    def geometry(self) -> tuple[int, int, int, int]:
        """Return the geometry that the phases of one call share."""
        return self.count, len(self.taps), self.dilation, self.pad


def phases(outputs: int, stride: int, before: int, taps: Sequence[int]) -> list[Phase]:
    """Return the phases of an axis with ``outputs`` outputs, before whose first one ``before`` more are cropped.

    ``taps`` are the weights' rows that are not 0, ascending.
    """
    found = []
    for first in range(min(stride, outputs)):
        count = -(-(outputs - first) // stride)
        own = [tap for tap in taps if (first + before - tap) % stride == 0]
        if not own:
            found.append(Phase(first, count, ()))
            continue
        dilation = math.gcd(*(tap - own[0] for tap in own)) // stride or 1
        reverse = tuple(range(own[-1], own[0] - 1, -stride * dilation))
        found.append(Phase(first, count, reverse, dilation, (own[-1] - first - before) // stride))
    return found


def groups_of(weights: Weights) -> int:
    """Return the most groups for which the weights [output, height, width, input] are 0 wherever the groups differ."""
    outputs, _, _, inputs = weights.shape
    used = weights.any(axis=(1, 2))
    most = math.gcd(outputs, inputs)
    for groups in range(most, 1, -1):
        if most % groups:
            continue
        blocks = np.asarray(used.reshape(groups, outputs // groups, groups, inputs // groups).any(axis=(1, 3)))
        if not blocks[~np.eye(groups, dtype=bool)].any():
            return groups
    return 1


def _diagonal(weights: Weights, groups: int) -> Weights:
    """Return the weights [output, height, width, input of the group] of each output's own group."""
    outputs, height, width, inputs = weights.shape
    blocks = weights.reshape(groups, outputs // groups, height, width, groups, inputs // groups)
    own = np.arange(groups)
    return blocks[own, :, :, :, own].reshape(outputs, height, width, inputs // groups)


@selects("transpose_conv")
def transpose_conv(graph: Graph, node: Node) -> list[KernelCall]:
    """conv_2d_s8 for each phase, conv_2d_1x1_s8 where it has one tap, depthwise_conv_2d_s8 where each group has one input.

    Neighbouring phases of the columns whose convolutions differ in their weights alone are one call with output channels
    for each of them: behind a column's channels, memory has the next column.
    """
    layer = _layer(graph, node)
    vertical, horizontal = (layer.phases(axis) for axis in (1, 2))
    runs = [list(run) for _, run in groupby(horizontal, lambda phase: phase.geometry)]
    if layer.groups > 1:
        runs = [[phase] for phase in horizontal]
    return [layer.call(rows, columns) for rows in vertical for columns in runs]


@dataclass(frozen=True, slots=True)
class _Layer:
    """A node with its operands. ``weights`` [output, height, width, input of the group]."""

    node: Node
    source: Tensor
    result: Tensor
    weights: Weights
    scales: npt.ArrayLike
    """The factors of the accumulators: one for each output channel, or one for all."""
    bias: npt.NDArray[np.int32] | None
    groups: int

    def phases(self, axis: int) -> list[Phase]:
        others = tuple(other for other in range(4) if other != axis)
        stride = self.node["stride_h" if axis == 1 else "stride_w"]
        taps = np.flatnonzero(self.weights.any(axis=others)).tolist()
        padding = cropped(self.node, self.source.shape, self.weights.shape, self.result.shape)
        return phases(self.result.shape[axis], stride, padding[2 * axis - 2], taps)

    def call(self, rows: Phase, columns: Sequence[Phase]) -> KernelCall:
        """Return the convolution of one phase of the rows and of phases of the columns that have one geometry."""
        window = np.concatenate([self._window(rows, phase) for phase in columns])
        pad, times = (rows.pad, columns[0].pad), len(columns)
        multipliers, shifts = quantize_multipliers(np.reshape(self.scales, -1))
        if multipliers.size > 1:
            multipliers, shifts = np.tile(multipliers, times), np.tile(shifts, times)
        output = self._view(rows, columns)
        return convolution(
            self._kernel(window, pad, output),
            self.node,
            {"input": whole(self.source), "output": output},
            window,
            None if self.bias is None else np.tile(self.bias, times),
            (multipliers, shifts),
            zero_points(self.source, self.result),
            clamp_of(self.node, self.result),
            groups=self.groups,
            dilation=(rows.dilation, columns[0].dilation),
            pad=pad,
        )

    def _kernel(self, window: Weights, pad: tuple[int, int], output: View) -> str:
        _, kernel_h, kernel_w, inputs = window.shape
        if self.groups > 1:
            return "depthwise_conv_2d_s8" if inputs == 1 else "conv_2d_s8"
        _, height, width, _ = whole(self.source).extents
        _, rows, columns, _ = output.extents
        point = kernel_h == kernel_w == 1 and pad == (0, 0)
        return "conv_2d_1x1_s8" if point and rows <= height and columns <= width else "conv_2d_s8"

    def _window(self, rows: Phase, columns: Phase) -> Weights:
        """Return the taps of one phase; a single 0 where there are none."""
        if not rows.taps or not columns.taps:
            shape = (max(1, len(rows.taps)), max(1, len(columns.taps)))
            return np.zeros((self.weights.shape[0], *shape, self.weights.shape[3]), np.int8)
        return self.weights[:, rows.taps][:, :, columns.taps]

    def _view(self, rows: Phase, columns: Sequence[Phase]) -> View:
        batches, _, _, channels = self.result.shape
        extents = (batches, rows.count, columns[0].count, channels * len(columns))
        batch, row, column, channel = dense_pitches(extents_of(self.result.shape))
        pitches = (batch, self.node["stride_h"] * row, self.node["stride_w"] * column, channel)
        return View(self.result.name, extents, pitches, rows.first * row + columns[0].first * column)


def _layer(graph: Graph, node: Node) -> _Layer:
    source, weights, bias = graph.given(node, INPUT), graph.given(node, WEIGHTS), graph.operand(node, BIAS)
    assert weights.data is not None
    data = np.asarray(weights.data, np.int8)
    groups = groups_of(data)
    values = None if bias is None or bias.data is None else np.asarray(bias.data, np.int32).reshape(-1)
    scales = of_convolution(INPUT, WEIGHTS)(graph, node)
    return _Layer(node, source, graph[node.outputs[0]], _diagonal(data, groups), scales, values, groups)
