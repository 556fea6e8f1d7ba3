# SPDX-License-Identifier: BSD-3-Clause
"""Select kernel calls for convolutions, transposed convolutions, fully connected layers and products of matrices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import numpy.typing as npt

from openneutron.compiler.select.calls import (
    KernelCall,
    View,
    dense_pitches,
    elements,
    kernel_of,
    quant_of,
    requantization,
    selects,
    wide_requantization,
)
from openneutron.compiler.select.needs import Walk, merged, row_major
from openneutron.ir import DType, Graph, Node, Tensor
from openneutron.ops.conv import BIAS, DATA, WEIGHTS, cropped, explicit_padding, matrices
from openneutron.ops.limits import has_wide_sums
from openneutron.ops.reductions import MOST_ADDED
from openneutron.ops.rescaling import (
    STORED_BOUNDS,
    Multipliers,
    activation_range,
    double_multipliers,
    fit_multipliers,
    matmul_factor,
    of_convolution,
    quantize_multiplier,
    quantize_multipliers,
    reduced_multipliers,
    single_rounding_range,
)


@selects("batch_matmul")
def batch_matmul(graph: Graph, node: Node) -> list[KernelCall]:
    """Select batch_matmul_s8 or batch_matmul_s16.

    One call suffices if each operand steps through all batch dimensions with a single pitch (``merged``). Otherwise
    there is a call for each index into all but the last of the merged dimensions.
    """
    a, b, result = tensors = graph.given(node, 0), graph.given(node, 1), graph[node.name]
    a_quant, b_quant, output = map(quant_of, tensors)
    factor, size = matmul_factor(a_quant, b_quant, output), result.dtype.size_bytes
    left, right = matrices(graph, node)
    (rows, depth), columns = left[-2:], right[-1]
    params = {"depth": depth}
    if result.dtype is DType.INT16:
        multipliers, shifts = reduced_multipliers(factor)
        params |= {"output_multiplier": int(multipliers), "output_shift": int(shifts)}
    else:
        multiplier, shift = quantize_multiplier(factor)
        params |= {"a_zero_point": a_quant.zero_point, "b_zero_point": b_quant.zero_point}
        params |= {"output_multiplier": multiplier, "output_shift": shift, "output_zero_point": output.zero_point}
    batches = result.shape[:-2]
    walks: Mapping[str, Walk] = {
        "input_a": Walk(a.name, _repeated(a.shape[:-2], row_major(a.shape, size), batches)),
        "input_b": Walk(b.name, _repeated(b.shape[:-2], row_major(b.shape, size), batches)),
        "output": Walk(result.name, row_major(result.shape, size)[:-2]),
    }
    extents, walks = merged(batches, walks)
    last = extents[-1] if extents else 1
    a_row, a_depth = (size, a.shape[-1] * size) if node["adj_x"] else (a.shape[-1] * size, size)
    b_depth, b_column = (size, b.shape[-1] * size) if node["adj_y"] else (b.shape[-1] * size, size)
    inner = {
        "input_a": ((rows, 1, depth), (a_row, size, a_depth)),
        "input_b": ((depth, 1, columns), (b_depth, size, b_column)),
        "output": ((rows, 1, columns), (columns * size, size, size)),
    }
    calls = []
    for index in itertools.product(*map(range, extents[:-1])):
        views = {}
        for name, walk in walks.items():
            offset = sum(i * pitch for i, pitch in zip(index, walk.pitches[:-1], strict=True))
            shape, pitches = inner[name]
            batch = walk.pitches[-1] if walk.pitches else size
            views[name] = View(walk.tensor, (last, *shape), (batch, *pitches), offset, size)
        calls.append(KernelCall(kernel_of("batch_matmul", result.dtype), node.name, views, params))
    return calls


def _repeated(own: tuple[int, ...], pitches: tuple[int, ...], batches: tuple[int, ...]) -> tuple[int, ...]:
    """Return an operand's pitches for the batch dimensions of the result. The pitch is 0 along a dimension in which the
    operand is broadcast."""
    missing = len(batches) - len(own)
    here = zip(own, pitches[: len(own)], batches[missing:], strict=True)
    return (0,) * missing + tuple(0 if extent == 1 < count else pitch for extent, pitch, count in here)


@selects("conv_2d", "depthwise_conv_2d")
def conv_2d(graph: Graph, node: Node) -> list[KernelCall]:
    """Select depthwise_conv_2d_s8, conv_2d_1x1_s8 or conv_2d_s8; for int16 depthwise_conv_2d_s16 or conv_2d_s16.

    conv_2d_1x1_s8 is for kernels of one point without padding or groups. mean_s8 is for a depthwise convolution whose
    window is the whole image and whose weights are all equal. As in LiteRT, the depth multiplier follows from the
    shapes.
    """
    source, result = graph.given(node, 0), graph[node.name]
    weights = _weights(graph, node)
    depthwise = node.op == "depthwise_conv_2d"
    if depthwise and (mean := _weighted_mean(graph, node)) is not None:
        return [mean]
    weights = weights.transpose(3, 1, 2, 0) if depthwise else weights
    _, kernel_h, kernel_w, group_inputs = weights.shape
    _, height, width, channels = source.shape
    padding = explicit_padding(node, height, width, kernel_h, kernel_w)
    groups = channels // group_inputs
    pointwise = kernel_h == kernel_w == groups == 1 and not any(padding)
    call = convolution(
        _kernel(source.dtype, depthwise, pointwise),
        node,
        {"input": elements(source), "output": elements(result)},
        weights,
        _bias(graph, node),
        _multipliers(graph, node, of_convolution(0, 1)(graph, node)),
        zero_points(source, result),
        clamp_of(node, result),
        groups=groups,
        stride=(node["stride_h"], node["stride_w"]),
        dilation=(node.attrs.get("dilation_h", 1), node.attrs.get("dilation_w", 1)),
        pad=(padding[0], padding[2]),
        rounding=_rounding(graph, node),
    )
    return [call]


def _weighted_mean(graph: Graph, node: Node) -> KernelCall | None:
    """Return a call of mean_s8 for an int8 depthwise convolution that is a multiple of the mean: its window is the
    whole image without padding, all weights are the same positive number, the bias is 0, all channels have the same
    rescaling factor, and the sums are small enough for mean_s8. Return None for any other convolution."""
    source, result = graph.given(node, 0), graph[node.name]
    weights, bias = _weights(graph, node), _bias(graph, node)
    _, height, width, channels = source.shape
    weight = int(weights.flat[0])
    is_whole = weights.shape[1:] == (height, width, channels) and result.shape[1:3] == (1, 1) and height * width > 1
    is_mean = is_whole and weight > 0 and bool((weights == weight).all()) and (bias is None or not bias.any())
    if not is_mean or source.dtype is not DType.INT8 or height * width * weight > MOST_ADDED:
        return None
    if any(explicit_padding(node, height, width, height, width)) or node["dilation_h"] != 1 or node["dilation_w"] != 1:
        return None
    multipliers, shifts = (
        np.unique(numbers) for numbers in _multipliers(graph, node, of_convolution(0, 1)(graph, node))
    )
    if multipliers.size > 1 or shifts.size > 1:
        return None
    low, high = clamp_of(node, result)
    points = zero_points(source, result)
    params = {
        "input_zero_point": points[0],
        "weight": weight,
        "output_multiplier": int(multipliers[0]),
        "output_shift": int(shifts[0]),
        "output_zero_point": points[1],
        "clamp_min": low,
        "clamp_max": high,
    }
    return KernelCall("mean_s8", node.name, {"input": elements(source), "output": elements(result)}, params)


def _kernel(dtype: DType, depthwise: bool, pointwise: bool) -> str:
    """Return the name of the kernel of a convolution. ``pointwise``: its window is one point, without padding or groups."""
    if dtype is DType.INT16:
        pointwise = False  # There is no conv_2d_1x1_s16.
    return kernel_of("depthwise_conv_2d" if depthwise else "conv_2d_1x1" if pointwise else "conv_2d", dtype)


ROUNDED_ONCE = 1
"""The value of ``single_rounding`` of int8 kernels if the accumulator times a multiplier of 51 bits is rounded once."""

NARROW_SUMS, IN_DOUBLE = 1, 2
"""The bits of ``rounding`` of int16 kernels: the accumulator has 32 bits (otherwise 64); it is multiplied by a double."""


def _rounding(graph: Graph, node: Node) -> int:
    """Return the rounding parameter of a convolution: ``NARROW_SUMS`` for int16 with int32 sums, otherwise 0."""
    wide = has_wide_sums(graph, node) or graph[node.name].dtype is DType.INT8
    return 0 if wide else NARROW_SUMS


def _multipliers(graph: Graph, node: Node, factors: npt.ArrayLike) -> Multipliers:
    """Return the fixed-point multipliers and shifts of a convolution's rescaling factors. If the sums are int64, LiteRT
    uses multipliers of 15 fractional bits, and so does the result."""
    return (reduced_multipliers if has_wide_sums(graph, node) else quantize_multipliers)(factors)


@selects("fully_connected")
def fully_connected(graph: Graph, node: Node) -> list[KernelCall]:
    """Select conv_2d_1x1_s8, or conv_2d_s16 for int16. The call sees the input as one row with a column for each
    input vector.

    LiteRT's reference kernel multiplies by a double and rounds once. For int8, fixed-point multipliers are chosen
    that give the same results. The kernel for int16 multiplies and rounds as doubles do.
    """
    source, result = graph.given(node, 0), graph[node.name]
    weights = _weights(graph, node)
    filters, inputs = weights.shape
    vectors = math.prod(source.shape) // inputs
    factors = of_convolution(0, 1)(graph, node)
    if source.dtype is DType.INT16:
        multipliers, rounding = double_multipliers(factors), IN_DOUBLE + _rounding(graph, node)
    else:
        fitted = fit_multipliers(factors, *single_rounding_range(graph, node))
        assert fitted is not None, "the row's limits refuse what can't be fitted"
        multipliers, rounding = fitted, ROUNDED_ONCE
    call = convolution(
        _kernel(source.dtype, False, True),
        node,
        {"input": _vectors(source, vectors, inputs), "output": _vectors(result, vectors, filters)},
        weights[:, None, None, :],
        _bias(graph, node),
        multipliers,
        zero_points(source, result),
        clamp_of(node, result),
        rounding=rounding,
    )
    return [call]


def convolution(
    kernel: str,
    node: Node,
    views: Mapping[str, View],
    weights: npt.NDArray[np.int8],
    bias: npt.NDArray[np.signedinteger] | None,
    multipliers: Multipliers,
    zero_points: tuple[int, int],
    clamp: tuple[int, int],
    *,
    groups: int = 1,
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    pad: tuple[int, int] = (0, 0),
    rounding: int = 0,
) -> KernelCall:
    """Return the call of a convolution with weights [output, height, width, input of the group].

    ``zero_points`` are those of the input and the output. ``clamp`` is the lowest and the highest stored result. ``stride``,
    ``dilation`` and ``pad`` are numbers for rows and for columns; ``pad`` is the padding before the first row and column.
    ``rounding`` is the kernel's parameter ``rounding``, or ``single_rounding`` of int8 kernels.
    """
    filters, kernel_h, kernel_w, group_inputs = weights.shape
    wide = views["input"].element_bytes > 1
    params = {
        "kernel_h": kernel_h,
        "kernel_w": kernel_w,
        "stride_h": stride[0],
        "stride_w": stride[1],
        "dilation_h": dilation[0],
        "dilation_w": dilation[1],
        "pad_top": pad[0],
        "pad_left": pad[1],
        "group_inputs": group_inputs,
        "group_outputs": filters // groups,
        "rounding" if wide else "single_rounding": rounding,
        "constant_channel0": 0,
        "constant_channels": filters,
        **({} if wide else {"input_zero_point": zero_points[0], "output_zero_point": zero_points[1]}),
        "clamp_min": clamp[0],
        "clamp_max": clamp[1],
    }
    if wide:
        table = wide_requantization(bias, filters, *multipliers)
        return KernelCall(kernel, node.name, views, params, {"weights": weights, "requant": table})
    sums = np.asarray(weights.sum(axis=(1, 2, 3), dtype=np.int64))
    requant = requantization(bias, sums, zero_points[0], *multipliers)
    return KernelCall(kernel, node.name, views, params, {"weights": weights, "requant": requant})


def zero_points(source: Tensor, result: Tensor) -> tuple[int, int]:
    """Return the zero points of a node's input and result."""
    return quant_of(source).zero_point, quant_of(result).zero_point


def clamp_of(node: Node, result: Tensor) -> tuple[int, int]:
    """Return the lowest and the highest stored result that the fused activation of a node allows."""
    output = quant_of(result)
    bounds = STORED_BOUNDS[result.dtype]
    return activation_range(node.attrs.get("activation", "NONE"), output.scale, output.zero_point, *bounds)


def _vectors(tensor: Tensor, count: int, channels: int) -> View:
    extents, size = (1, 1, count, channels), tensor.dtype.size_bytes
    return View(tensor.name, extents, dense_pitches(extents, size), element_bytes=size)


def _weights(graph: Graph, node: Node) -> npt.NDArray[np.int8]:
    weights = graph.given(node, 1).data
    assert weights is not None, f"the weights of {node.name} are not constant"
    return weights


def _bias(graph: Graph, node: Node) -> npt.NDArray[np.signedinteger] | None:
    bias = graph.operand(node, 2)
    assert bias is None or bias.data is not None, f"the bias of {node.name} is not constant"
    return None if bias is None or bias.data is None else bias.data.reshape(-1)


Weights = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Phase:
    """The outputs of a transposed convolution, along one axis, that one ordinary convolution computes. They are the
    outputs ``first``, ``first + stride`` and so on, ``count`` in all.

    ``taps`` are the indices of the weights along this axis that reach these outputs, in the order of the ordinary
    convolution. If no weight reaches them, ``taps`` is empty. ``dilation`` and ``pad`` are those of the ordinary
    convolution.
    """

    first: int
    count: int
    taps: tuple[int, ...]
    dilation: int = 1
    pad: int = 0

    @property
    def geometry(self) -> tuple[int, int, int, int]:
        """Return the number of outputs, the number of taps, the dilation and the padding. Neighbouring phases can be
        computed in one call only if these are equal."""
        return self.count, len(self.taps), self.dilation, self.pad


def phases(outputs: int, stride: int, before: int, taps: Sequence[int]) -> list[Phase]:
    """Return the phases of one axis of a transposed convolution. The axis has ``outputs`` outputs; ``before`` more
    outputs in front of them are cropped.

    ``taps`` are the indices, ascending, of the weights along the axis that are not all 0.
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
    """Return the largest number of groups into which weights [output, height, width, input] divide: all weights between
    different groups are 0."""
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
    """Return the weights inside the groups, as [output, height, width, input of the group]. The weights between groups,
    all 0, are dropped."""
    outputs, height, width, inputs = weights.shape
    blocks = weights.reshape(groups, outputs // groups, height, width, groups, inputs // groups)
    own = np.arange(groups)
    return blocks[own, :, :, :, own].reshape(outputs, height, width, inputs // groups)


@selects("transpose_conv")
def transpose_conv(graph: Graph, node: Node) -> list[KernelCall]:
    """Select a convolution for each phase of the rows and each phase of the columns.

    The kernel is conv_2d_s8. It is conv_2d_1x1_s8 for one tap without padding or groups, and depthwise_conv_2d_s8 for
    several groups of one input each. For int16 it is conv_2d_s16 or depthwise_conv_2d_s16.

    Output row o reads the taps i for which o + cropped - i is a multiple of the stride, and the input rows (o +
    cropped - i) / stride. The outputs of one phase, o = phase + stride * m, read the same taps and consecutive input
    rows. So a phase is a convolution of stride 1 with every stride-th tap in reverse order, which writes every
    stride-th row. The same holds for columns. The sums equal those of LiteRT's scattering kernel
    (reference/integer_ops/transpose_conv.h), since both are modulo 2^32.

    Zeros cost nothing if they fill whole rows or columns of the weights, as in a dilated kernel or one that was
    enlarged for SAME padding, or if they separate groups. LiteRT has no grouped transposed convolution, and stores
    one with such zeros.

    Neighbouring phases of the columns become one call if only their weights differ and there is one group. The output
    channels of this call are those of all its phases, since the next column follows the channels of a column in
    memory.
    """
    layer = _layer(graph, node)
    vertical, horizontal = (layer.phases(axis) for axis in (1, 2))
    runs = [list(run) for _, run in groupby(horizontal, lambda phase: phase.geometry)]
    if layer.groups > 1:
        runs = [[phase] for phase in horizontal]
    return [layer.call(rows, columns) for rows in vertical for columns in runs]


@dataclass(frozen=True, slots=True)
class _Layer:
    """A transposed convolution with its operands. ``weights`` are [output, height, width, input of the group]."""

    node: Node
    source: Tensor
    result: Tensor
    weights: Weights
    multipliers: Multipliers
    """One for each output channel, or one for all."""
    bias: npt.NDArray[np.signedinteger] | None
    groups: int
    rounding: int

    def phases(self, axis: int) -> list[Phase]:
        others = tuple(other for other in range(4) if other != axis)
        stride = self.node["stride_h" if axis == 1 else "stride_w"]
        taps = np.flatnonzero(self.weights.any(axis=others)).tolist()
        padding = cropped(self.node, self.source.shape, self.weights.shape, self.result.shape)
        return phases(self.result.shape[axis], stride, padding[2 * axis - 2], taps)

    def call(self, rows: Phase, columns: Sequence[Phase]) -> KernelCall:
        """Return the call for one phase of the rows and for neighbouring phases of the columns with the same geometry."""
        window = np.concatenate([self._window(rows, phase) for phase in columns])
        pad, times = (rows.pad, columns[0].pad), len(columns)
        multipliers, shifts = self.multipliers
        if multipliers.size > 1:
            multipliers, shifts = np.tile(multipliers, times), np.tile(shifts, times)
        output = self._view(rows, columns)
        return convolution(
            self._kernel(window, pad, output),
            self.node,
            {"input": elements(self.source), "output": output},
            window,
            None if self.bias is None else np.tile(self.bias, times),
            (multipliers, shifts),
            zero_points(self.source, self.result),
            clamp_of(self.node, self.result),
            groups=self.groups,
            dilation=(rows.dilation, columns[0].dilation),
            pad=pad,
            rounding=self.rounding,
        )

    def _kernel(self, window: Weights, pad: tuple[int, int], output: View) -> str:
        _, kernel_h, kernel_w, inputs = window.shape
        if self.groups > 1:
            return _kernel(self.source.dtype, inputs == 1, False)
        _, height, width, _ = self.source.shape
        _, rows, columns, _ = output.extents
        point = kernel_h == kernel_w == 1 and pad == (0, 0)
        return _kernel(self.source.dtype, False, point and rows <= height and columns <= width)

    def _window(self, rows: Phase, columns: Phase) -> Weights:
        """Return the weights of one phase of rows and columns, in the order of its taps. Where a phase has no taps, the
        result is a weight of 0."""
        if not rows.taps or not columns.taps:
            shape = (max(1, len(rows.taps)), max(1, len(columns.taps)))
            return np.zeros((self.weights.shape[0], *shape, self.weights.shape[3]), np.int8)
        return self.weights[:, rows.taps][:, :, columns.taps]

    def _view(self, rows: Phase, columns: Sequence[Phase]) -> View:
        batches, _, _, channels = self.result.shape
        extents = (batches, rows.count, columns[0].count, channels * len(columns))
        dense = elements(self.result)
        batch, row, column, channel = dense.pitches
        pitches = (batch, self.node["stride_h"] * row, self.node["stride_w"] * column, channel)
        return replace(dense, extents=extents, pitches=pitches, offset=rows.first * row + columns[0].first * column)


def _layer(graph: Graph, node: Node) -> _Layer:
    source, weights, bias = graph.given(node, DATA), graph.given(node, WEIGHTS), graph.operand(node, BIAS)
    assert weights.data is not None
    data = np.asarray(weights.data, np.int8)
    groups = groups_of(data)
    values = None if bias is None or bias.data is None else bias.data.reshape(-1)
    multipliers = _multipliers(graph, node, np.reshape(of_convolution(DATA, WEIGHTS)(graph, node), -1))
    own, result = _diagonal(data, groups), graph[node.outputs[0]]
    return _Layer(node, source, result, own, multipliers, values, groups, _rounding(graph, node))
