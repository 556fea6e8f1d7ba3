# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions in one, two and three dimensions, and padding: with a number, the edge, reflected and circular.

Convolutions of volumes become convolutions of images: the taps along the depth become channels.
LiteRT's TRANSPOSE_CONV has neither groups nor dilation. Both become zeros among the weights, and kernel selection drops the zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Node

from openneutron.ir import DType, QuantParams, per_channel, per_tensor
from openneutron.ops.conv import same_padding
from openneutron.ops.limits import SYMMETRIC
from openneutron.pytorch.graph.program import QUANTIZE_FIRST, Reject, Rejected, arguments_of, op_name, pair, shape_of
from openneutron.pytorch.operators.annotations import AnnotationRule, ScaleMap, annotates
from openneutron.pytorch.operators.rules.context import Context, Shape, Value, ends_of, take
from openneutron.pytorch.operators.rules.tables import Layout, decomposes, lowers

Array = np.ndarray[Any, Any]
Triple = Sequence[int]


@decomposes("aten.conv3d.default")
def conv3d(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Triple, padding: Triple, dilation: Triple, groups: int
) -> Tensor:
    """Compute a 3-D convolution as one 2-D convolution whose batch has one image for each output depth of each volume.

    The channels of an image are the concatenated channels of all planes under the window's depth. As in three dimensions, each output is
    one sum of products.
    """
    (step, *steps), (before, *around), (apart, *aparts) = (_three(item) for item in (stride, padding, dilation))
    planes = _padded(_planes(input), before, before)
    taps = weight.shape[2]
    count = (planes.shape[1] - apart * (taps - 1) - 1) // step + 1
    read = [_aten.slice.Tensor(planes, 1, k * apart, k * apart + (count - 1) * step + 1, step) for k in range(taps)]
    flat = weight.permute(0, 2, 1, 3, 4).reshape(weight.shape[0], -1, *weight.shape[3:])
    images = _aten.conv2d.default(_stacked(read, groups), flat, bias, steps, around, aparts, groups)
    return _volume(images.reshape(-1, count, *images.shape[1:]), input)


@decomposes("aten.conv3d.padding")
def conv3d_same_or_valid(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Triple, padding: str, dilation: Triple, groups: int
) -> Tensor:
    reaches = [apart * (taps - 1) for apart, taps in zip(_three(dilation), weight.shape[2:], strict=True)]
    if padding == "same":
        around = [pad for reach in reversed(reaches) for pad in (reach // 2, reach - reach // 2)]
        input = _aten.constant_pad_nd.default(input, around, 0.0)
    return conv3d(input, weight, bias, stride, [0, 0, 0], dilation, groups)


@decomposes("aten.conv_transpose3d.input")
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Triple,
    padding: Triple,
    output_padding: Triple,
    groups: int,
    dilation: Triple,
) -> Tensor:
    """Compute a transposed 3-D convolution as one transposed 2-D convolution for each phase of the depth's stride.

    Output depth o is a sum over the taps k and the input depths i with i * stride + k * dilation = o + padding. All outputs of a phase have
    the same taps.
    """
    (step, *steps), (before, *around), (apart, *aparts) = (_three(item) for item in (stride, padding, dilation))
    behind, *behinds = _three(output_padding)
    planes, taps = _planes(input), weight.shape[2]
    depth = planes.shape[1]
    outputs = (depth - 1) * step - 2 * before + apart * (taps - 1) + behind + 1
    count = -(-outputs // step)
    phases = []
    for first in range(step):
        starts = {
            k: (first + before - k * apart) // step for k in range(taps) if (first + before - k * apart) % step == 0
        }
        hit = [k for k, start in starts.items() if -count < start < depth]
        flat = _taps_of(weight, hit, groups)
        read = [_window(planes, starts[k], count) for k in hit] or [_window(planes, 0, count)]
        images = _aten.conv_transpose2d.input(
            _stacked(read, groups), flat, bias, steps, around, behinds, groups, aparts
        )
        phases.append(images.reshape(-1, count, *images.shape[1:]))
    if step == 1:
        return _volume(phases[0], input)
    together = _aten.cat.default([phase.unsqueeze(2) for phase in phases], 2)
    depths = together.reshape(together.shape[0], count * step, *together.shape[3:])
    return _volume(_aten.slice.Tensor(depths, 1, 0, outputs), input)


def _three(numbers: Sequence[int]) -> list[int]:
    """Return three numbers, one for each dimension. A single number is repeated."""
    return list(numbers) if len(numbers) == 3 else [numbers[0]] * 3


def _planes(volume: Tensor) -> Tensor:
    """Return [batch, depth, channels, rows, columns] of a volume with or without a batch."""
    batches = volume if volume.dim() == 5 else volume.unsqueeze(0)
    return _aten.permute.default(batches, [0, 2, 1, 3, 4])


def _volume(planes: Tensor, like: Tensor) -> Tensor:
    """Return the volume with these planes, with a batch where ``like`` has one."""
    volume = _aten.permute.default(planes, [0, 2, 1, 3, 4])
    return volume if like.dim() == 5 else volume.squeeze(0)


def _padded(planes: Tensor, before: int, behind: int) -> Tensor:
    if before == behind == 0:
        return planes
    return _aten.constant_pad_nd.default(planes, [0, 0, 0, 0, 0, 0, before, behind], 0.0)


def _window(planes: Tensor, start: int, count: int) -> Tensor:
    """Return ``count`` planes from ``start`` on. Planes outside of the volume are zeros; at least one plane is inside."""
    end, depth = start + count, planes.shape[1]
    first, last = min(max(start, 0), depth), min(max(end, 0), depth)
    inside = planes if (first, last) == (0, depth) else _aten.slice.Tensor(planes, 1, first, last)
    return _padded(inside, first - start, end - last)


def _stacked(read: list[Tensor], groups: int) -> Tensor:
    """Return [batch * depth, channels, rows, columns]: a group has the channels of its first tap, then of its second,
    and so on."""
    batches, depth, channels, *image = read[0].shape
    split = [tap.reshape(batches * depth, groups, channels // groups, *image) for tap in read]
    return _aten.cat.default(split, 2).reshape(batches * depth, -1, *image)


def _taps_of(weight: Tensor, taps: list[int], groups: int) -> Tensor:
    """Return the weights of a transposed 2-D convolution: the weights of a 3-D one at the positions ``taps`` of the
    depth, concatenated along the input channels.

    Return zeros if ``taps`` is empty.
    """
    split = weight.reshape(groups, -1, *weight.shape[1:])
    chosen = [split[:, :, :, k] for k in taps] or [torch.zeros_like(split[:, :, :, 0])]
    return _aten.cat.default(chosen, 1).reshape(-1, weight.shape[1], *weight.shape[3:])


_aten = torch.ops.aten
_SPATIAL = {_aten.conv_transpose1d.default: 1, _aten.conv_transpose2d.input: 2}
"""The number of dimensions after the channels. The input of these operators may have no batch."""


def _groups(node: Node) -> int:
    place = 8 if node.target is _aten.convolution.default else 6
    groups = node.args[place] if place < len(node.args) else node.kwargs.get("groups", 1)
    assert isinstance(groups, int)
    return groups


def _channels(node: Node, value: object) -> int:
    assert isinstance(value, Node)
    shape = value.meta["val"].shape
    return int(shape[-1 - _SPATIAL.get(node.target, len(shape) - 2)])


def _transposed_axis(node: Node) -> int:
    """Return the axis of a transposed convolution's weights [inputs, outputs of one group, ...] along which each
    index has its own scale.

    It is 0 for a depthwise convolution: several groups of one input channel each. Otherwise it is 1, and channels at
    the same position in different groups share a scale.
    """
    return 0 if _groups(node) == _channels(node, node.args[0]) > 1 else 1


def _output_scales(node: Node) -> ScaleMap:
    """Return the function from a transposed convolution's weight scales to the scales of all its output channels."""
    groups, outputs = _groups(node), _channels(node, node)
    if _transposed_axis(node) == 0:
        return lambda scales: scales.repeat_interleave(outputs // groups)
    return lambda scales: scales.repeat(groups)


def _is_transposed(node: Node) -> bool:
    return node.target in _SPATIAL or bool(node.args[6])


_CONVOLUTION = AnnotationRule(weight=1, weight_axis=0, bias=2, fuses=True)
_EITHER = AnnotationRule(
    weight=1,
    weight_axis=lambda node: _transposed_axis(node) if _is_transposed(node) else 0,
    bias=2,
    bias_scales=lambda node: _output_scales(node) if _is_transposed(node) else None,
    fuses=True,
)

annotates(
    {
        **{f"aten.conv{n}d.{form}": _CONVOLUTION for n in (1, 2) for form in ("default", "padding")},
        "aten.conv_transpose1d.default": _EITHER,
        "aten.conv_transpose2d.input": _EITHER,
        "aten.convolution.default": _EITHER,
    }
)


Pair = tuple[int, int]

OHWI = (0, 2, 3, 1)
IHWO_OF_DEPTHWISE = (1, 2, 3, 0)

BIAS_SCALE_TOLERANCE = 1e-5
"""The relative difference from (input scale * weight scale) up to which the scale of a bias counts as equal to it.

Float32 products differ by less.
"""


LARGEST_BIAS = {DType.INT32: 2**31 - 1, DType.INT64: 2**46 - 1}
"""The largest bias of each type. LiteRT can rescale sums of int16 products below 2**47."""


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window over rows and columns. ``before``: the padding before the first row and column. The padding after the last ones
    follows from the extents of the result; see ``behind``."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    before: tuple[int, int]
    dilation: tuple[int, int] = (1, 1)

    def behind(self, size: Shape, result: Shape) -> tuple[int, int]:
        """Return the numbers of rows and columns by which the last windows extend beyond an input with the extents ``size``."""
        reach = (
            (out - 1) * stride + (kernel - 1) * dilation + 1 - extent - before
            for out, stride, kernel, dilation, extent, before in zip(
                result, self.stride, self.kernel, self.dilation, size, self.before, strict=True
            )
        )
        rows, columns = (max(0, number) for number in reach)
        return rows, columns

    def is_same(self, size: Shape, result: Shape) -> bool:
        """Return whether the window's padding is what LiteRT calls SAME."""
        behind = self.behind(size, result)
        return all(
            out == -(-extent // stride) and same_padding(extent, kernel, stride, dilation) == (before, after)
            for out, extent, kernel, stride, dilation, before, after in zip(
                result, size, self.kernel, self.stride, self.dilation, self.before, behind, strict=True
            )
        )

    def is_valid(self, size: Shape, result: Shape) -> bool:
        """Return whether there is no padding at all."""
        return not any(self.before) and not any(self.behind(size, result))


def padded(context: Context, source: str, window: Window, result: Shape, value: int | None = None) -> tuple[str, str]:
    """Return a tensor and LiteRT's padding mode for a window over the NHWC tensor ``source`` with ``result`` rows and columns of output.

    Padding that is neither SAME nor VALID becomes a PAD node in front of a VALID window (PADV2 with the stored ``value``). The compiler
    fuses it.
    """
    here = context.tensors[source]
    size = here.shape[1:3]
    if window.is_valid(size, result):
        return source, "VALID"
    if window.is_same(size, result):
        return source, "SAME"
    amounts = ((0, 0), *zip(window.before, window.behind(size, result), strict=True), (0, 0))
    return pad(context, source, amounts, value), "VALID"


def pad(context: Context, source: str, amounts: tuple[tuple[int, int], ...], value: int | None = None) -> str:
    """Return the tensor padded by ``amounts`` before and after each axis with the stored ``value``. None: the zero point."""
    here = context.tensors[source]
    assert here.quant is not None
    shape = tuple(extent + before + after for extent, (before, after) in zip(here.shape, amounts, strict=True))
    paddings = context.add_constant(f"{source}_paddings", np.asarray(amounts, np.int32))
    if value is None or value == here.quant.zero_point:
        return context.emit("pad", (source, paddings), shape, here.quant, f"{source}_padded")
    filler = context.add_constant(f"{source}_filler", np.asarray([value], here.dtype.numpy), here.quant)
    return context.emit("padv2", (source, paddings, filler), shape, here.quant, f"{source}_padded")


@lowers(
    "aten.conv1d.default",
    "aten.conv2d.default",
    fuses=True,
    layout=Layout.NHWC,
    emits=("conv_2d", "depthwise_conv_2d", "pad", "padv2"),
)
def convolution(node: Node, context: Context) -> Value | Reject:
    given, shape = arguments_of(node), with_row(shape_of(node))
    data, weight, window = _operands(context, given, shape_of(node))
    weight = context.viewed(weight, with_row(weight.shape))
    groups, channels, filters = given["groups"], data.shape[1], shape[1]
    depthwise = groups == channels and groups > 1
    multiplier: dict[str, Any] = {"depth_multiplier": filters // channels} if depthwise else {}
    source, padding = padded(context, context.nhwc(data), window, shape[2:])
    quant = context.results.quant(node)
    weights = context.arranged(weight, IHWO_OF_DEPTHWISE if depthwise else OHWI)
    weights = weights_for_bias(context, given["bias"], source, weights)
    name = context.emit(
        "depthwise_conv_2d" if depthwise else "conv_2d",
        (source, weights, bias_of(context, given["bias"], source, weights, filters)),
        (shape[0], *shape[2:], filters),
        quant,
        node.name,
        padding=padding,
        stride_h=window.stride[0],
        stride_w=window.stride[1],
        dilation_h=window.dilation[0],
        dilation_w=window.dilation[1],
        activation=context.activation(node, quant),
        **multiplier,
    )
    return context.viewed(context.from_nhwc(name, shape), shape_of(node))


def _operands(context: Context, given: dict[str, Any], shape: Shape) -> tuple[Value, Value, Window]:
    """Return the data, the constant weights and the window of a convolution. For a 1-D convolution, data and window
    get a single row; the weights keep their shape.

    Raises Rejected for a 3-D convolution, and for weights that are not constant.
    """
    if len(shape) not in (3, 4):
        raise Rejected(f"it has {len(shape) - 2} spatial dimensions; there are kernels for 1 and 2")
    data, weight = context.value(given["input"]), context.value(given["weight"])
    if not context.tensors[weight.tensor].is_constant:
        raise Rejected("its weights are computed at run time; they must be constant")
    kernel = pair(with_row(weight.shape)[2:])
    # The row that a convolution in one dimension gets has neutral settings.
    stride, before, dilation = (
        (neutral, pair(given[key])[1]) if len(shape) == 3 else pair(given[key])
        for key, neutral in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    return context.viewed(data, with_row(data.shape)), weight, Window(kernel, stride, before, dilation)


def with_row(shape: Shape) -> Shape:
    """Return [N, C, 1, width] for the shape [N, C, width], and other shapes unchanged."""
    return (*shape[:2], 1, shape[2]) if len(shape) == 3 else shape


def bias_of(context: Context, node: Any, source: str, weights: str, filters: int) -> str:
    """Return the bias with the scale (input scale * weight scale), as int32, or as int64 with int16 activations.

    The result is zeros if there is no bias, because LiteRT requires one. A bias that is float or has another scale is converted; it must be
    a constant.
    """
    data, weight = context.tensors[source].quant, context.tensors[weights].quant
    dtype = (DType.INT64 if context.tensors[source].dtype is DType.INT16 else DType.INT32).numpy
    if data is None or weight is None:
        raise Rejected("its input or its weights are not quantized", QUANTIZE_FIRST)
    scales = np.asarray(weight.scales, np.float64) * data.scale
    if node is None:
        zeros = np.zeros(filters, dtype)
        return context.add_constant(f"{weights}_bias", zeros, _bias_quant(weight, data))
    value, real, own = _real_bias(context, node)
    if value.dtype == np.int32 and own is not None and np.allclose(own, scales, rtol=BIAS_SCALE_TOLERANCE, atol=0):
        return context.add_constant(f"{node.name}_bias", value.astype(dtype), _bias_quant(weight, data))
    if value.size != filters:
        raise Rejected(f"its bias has {value.size} values for {filters} output channels")
    limit = LARGEST_BIAS[DType(dtype.name)]
    steps = np.clip(np.rint(real / scales), -limit - 1, limit)
    return context.add_constant(f"{node.name}_bias", steps.astype(dtype), _bias_quant(weight, data))


def _real_bias(context: Context, node: Any) -> tuple[Array, Array, Array | None]:
    """Return the stored values of a constant bias, its real values, and its scales. The scales are None for a float bias."""
    if node in context.constants:
        value: Array = context.constants.array(node).reshape(-1)
        return value, value.astype(np.float64), None
    tensor = context.tensors[context.settled(context.value(node)).tensor]
    if tensor.data is None or tensor.quant is None:
        raise Rejected("its bias is computed at run time; it must be constant")
    value, own = tensor.data.reshape(-1), np.asarray(tensor.quant.scales, np.float64)
    return value, (value.astype(np.float64) - np.asarray(tensor.quant.zero_points)) * own, own


def weights_for_bias(context: Context, node: Any, source: str, weights: str) -> str:
    """Return the weights with larger scales for channels whose bias would exceed the range of its type.

    The scale of a bias is (input scale * weight scale), which is tiny for a channel of weights near 0. Rounding a weight to the larger
    scale changes a product by at most 2**-23 of the bias.
    """
    here, data = context.tensors[weights], context.tensors[source].quant
    if node is None or data is None or here.quant is None or here.data is None or any(here.quant.zero_points):
        return weights
    dtype = DType.INT64 if context.tensors[source].dtype is DType.INT16 else DType.INT32
    _, real, _ = _real_bias(context, node)
    scales = np.asarray(here.quant.scales, np.float64)
    least = np.abs(real) / (LARGEST_BIAS[dtype] * data.scale)
    if not here.quant.per_channel:
        least = least.max(keepdims=True)
    if least.shape != scales.shape or not (least > scales).any():
        return weights
    wider = np.maximum(scales, 2 * least * (least > scales))
    axis = here.quant.axis or 0
    along = [-1 if index == axis else 1 for index in range(here.data.ndim)]
    stored = np.rint(here.data * (scales / wider).reshape(along if here.quant.per_channel else [1])).astype(
        here.data.dtype
    )
    quant = per_channel(wider, axis) if here.quant.per_channel else per_tensor(float(wider[0]), 0)
    return context.add_constant(f"{weights}_for_bias", stored, quant)


def _bias_quant(weight: QuantParams, data: QuantParams) -> QuantParams:
    if weight.per_channel:
        return per_channel(np.asarray(weight.scales) * data.scale, 0)
    return per_tensor(weight.scale * data.scale, 0)


@lowers(
    "aten.convolution.default",
    fuses=True,
    layout=Layout.NHWC,
    emits=("conv_2d", "depthwise_conv_2d", "transpose_conv", "pad", "padv2", "slice"),
)
def any_convolution(node: Node, context: Context) -> Value | Reject:
    """Lower ``aten.convolution``, to which ExecuTorch converts every convolution. The quantizer has decomposed those in three
    dimensions."""
    return (conv_transpose if arguments_of(node)["transposed"] else convolution)(node, context)


@lowers(
    "aten.conv_transpose1d.default",
    "aten.conv_transpose2d.input",
    fuses=True,
    layout=Layout.NHWC,
    emits=("transpose_conv", "slice"),
)
def conv_transpose(node: Node, context: Context) -> Value | Reject:
    """Lower to a TRANSPOSE_CONV, and a SLICE of its result if PyTorch's padding crops more than SAME or VALID does."""
    given, shape = arguments_of(node), with_row(shape_of(node))
    data, weight, window = _operands(context, given, shape_of(node))
    stride, before, dilation = window.stride, window.before, window.dilation
    source = context.nhwc(data)
    extents, result = pair(context.tensors[source].shape[1:3]), pair(shape[2:])
    spread = _each(lambda taps, step: (taps - 1) * step + 1, window.kernel, dilation)
    padding, whole = "SAME", result
    if not _is_same(extents, result, spread, stride, before):
        # Positions after the last window hold the bias alone. Under VALID there are fewer of them than the stride.
        behind = _each(
            lambda left, size, step, taps, out: max(0, left + out - (size - 1) * step - taps),
            before, extents, stride, spread, result,
        )  # fmt: skip
        whole = _each(lambda size, step, taps, more: (size - 1) * step + taps + more, extents, stride, spread, behind)
        spread = _each(lambda taps, more, step: taps + max(0, more - step + 1), spread, behind, stride)
        padding = "VALID"
    weights = _weights(context, weight, given["groups"], spread, dilation)
    weights = weights_for_bias(context, given["bias"], source, weights)
    quant, filters = context.results.quant(node), shape[1]
    stored = (shape[0], *whole, filters)
    name = context.emit(
        "transpose_conv",
        (
            context.add_integers(f"{node.name}_shape", stored),
            weights,
            source,
            bias_of(context, given["bias"], source, weights, filters),
        ),
        stored,
        quant,
        node.name,
        padding=padding,
        stride_h=stride[0],
        stride_w=stride[1],
        activation=context.activation(node, quant),
    )
    if whole != result:
        begin = context.add_integers(f"{node.name}_begin", (0, *before, 0))
        stored = (shape[0], *result, filters)
        size = context.add_integers(f"{node.name}_size", stored)
        name = context.emit("slice", (name, begin, size), stored, quant, f"{node.name}_cropped")
    return context.viewed(context.from_nhwc(name, shape), shape_of(node))


def _each(rule: Any, *sides: Pair) -> Pair:
    rows, columns = (rule(*numbers) for numbers in zip(*sides, strict=True))
    return rows, columns


def _is_same(extents: Pair, result: Pair, spread: Pair, stride: Pair, before: Pair) -> bool:
    """Return whether LiteRT's SAME padding allows a result with these extents and crops it exactly as PyTorch's padding does."""

    def one(size: int, out: int, taps: int, step: int, left: int) -> bool:
        least = (size - 1) * step
        return least < out <= least + step and max(0, least + taps - out) // 2 == left

    return all(_each(one, extents, result, spread, stride, before))


def _weights(context: Context, weight: Value, groups: int, spread: Pair, dilation: Pair) -> str:
    """Convert the weights [input, output of the group, height, width] of PyTorch to a constant [output, height,
    width, input], without groups and dilation.

    ``spread`` is the height and width of the constant. Its added elements are zeros: those between dilated taps, and
    those that connect different groups.
    """
    name = context.arranged(weight, tuple(range(len(weight.shape))))
    here = context.tensors[name]
    inputs, group_outputs, kernel_h, kernel_w = with_row(weight.shape)
    assert here.data is not None and here.quant is not None
    quant = output_scales(here.quant, groups, inputs, group_outputs)
    shape = (groups * group_outputs, *spread, inputs)
    if here.data.size > 1 and not any(here.data.strides):
        # Only the shape is known while ExecuTorch partitions.
        return context.add_constant(f"{name}_ohwi", np.broadcast_to(np.zeros((), DType.INT8.numpy), shape), quant)
    cube = here.data.reshape(groups, inputs // groups, group_outputs, kernel_h, kernel_w).transpose(0, 2, 3, 4, 1)
    dense = np.zeros((groups, group_outputs, *spread, groups, inputs // groups), here.data.dtype)
    rows, columns = (step * (taps - 1) + 1 for step, taps in zip(dilation, (kernel_h, kernel_w), strict=True))
    for group in range(groups):
        dense[group, :, : rows : dilation[0], : columns : dilation[1], group] = cube[group]
    return context.add_constant(f"{name}_ohwi", dense.reshape(shape), quant)


def output_scales(quant: QuantParams, groups: int, inputs: int, group_outputs: int) -> QuantParams:
    """Return the quantization of a transposed convolution's weights: one scale for each output channel, or one scale
    for all. Raises Rejected if the given scales belong to another axis, or if per-channel weights have a zero point."""
    if quant.axis is None:
        return quant
    if any(quant.zero_points):
        raise Rejected("its weights have a zero point; weights must be symmetric", f"{SYMMETRIC}.")
    if quant.axis == 1:
        return QuantParams(quant.scales * groups, quant.zero_points * groups, 0)
    if quant.axis == 0 and inputs == groups:
        scales = tuple(scale for scale in quant.scales for _ in range(group_outputs))
        return QuantParams(scales, (0,) * len(scales), 0)
    raise Rejected(
        f"its weights have a scale for each index of axis {quant.axis}, where each output channel needs one",
        "Quantize with NeutronQuantizer, or along axis 1.",
    )


Amounts = list[tuple[int, int]]
"""The padding before and after each dimension. A negative amount crops."""


def _amounts(flat: list[int], rank: int) -> Amounts:
    """Return the amounts for all dimensions from PyTorch's flat list, which starts with the last dimension."""
    amounts = [(0, 0)] * rank
    for place in range(len(flat) // 2):
        amounts[-1 - place] = (flat[2 * place], flat[2 * place + 1])
    return amounts


@lowers(
    "aten.pad.default",
    "aten.constant_pad_nd.default",
    moves=True,
    preserve=lambda node: arguments_of(node).get("mode", "constant") != "constant",
    emits=("pad", "padv2", "slice", "gather", "mirror_pad"),
)
def padding(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    mode = given.get("mode", "constant")
    if mode == "constant":
        return _constant(node, context, list(given["pad"]), float(given.get("value") or 0.0))
    return _repeated(node, context, mode, list(given["pad"]))


@lowers(
    *(f"aten.{mode}_pad{n}d.default" for mode in ("reflection", "replication") for n in (1, 2, 3)),
    moves=True,
    preserve=lambda _: True,
    emits=("pad", "padv2", "slice", "gather", "mirror_pad"),
)
def repeated_padding(node: Node, context: Context) -> Value | Reject:
    mode = "reflect" if "reflection" in op_name(node) else "replicate"
    return _repeated(node, context, mode, list(arguments_of(node)["padding"]))


def _repeated(node: Node, context: Context, mode: str, flat: list[int]) -> Value | Reject:
    value, shape = context.settled(context.value(node.args[0])), shape_of(node)
    amounts = [_amounts(flat, len(value.shape))[axis] for axis in value.order]
    name = value.tensor
    padded = [axis for axis, pair in enumerate(amounts) if any(pair)]
    if mode == "reflect" and len(padded) == 2 and all(min(amounts[axis]) >= 0 for axis in padded):
        name = _mirror_pad(node, context, name, amounts)
    else:
        for axis in padded:
            # The input position that PyTorch copies to each position of the result.
            numbers = torch.arange(context.tensors[name].shape[axis], dtype=torch.float32).reshape(1, 1, -1)
            positions = F.pad(numbers, amounts[axis], mode).reshape(-1)
            name = take(context, name, axis, [int(place) for place in positions], node.name)
    return _in_result_quant(node, context, Value(name, shape, value.order, shape))


def _mirror_pad(node: Node, context: Context, name: str, amounts: Amounts) -> str:
    here = context.tensors[name]
    assert here.quant is not None
    operand = context.add_constant(f"{node.name}_paddings", np.asarray(amounts, np.int32))
    shape = tuple(extent + sum(pair) for extent, pair in zip(here.shape, amounts, strict=True))
    return context.emit("mirror_pad", (name, operand), shape, here.quant, node.name, mode="REFLECT")


def _constant(node: Node, context: Context, flat: list[int], filler: float) -> Value | Reject:
    if math.isnan(filler):
        return Reject("it pads with NaN, which no integer can hold")
    value = context.settled(context.value(node.args[0]))
    amounts = _amounts(flat, len(value.shape))
    cropped = _cropped(node, context, value, amounts)
    if cropped.shape == shape_of(node):
        return _in_result_quant(node, context, cropped)
    value = cropped
    quant, dtype = context.quant(value), context.dtype(value)
    least, most = ends_of(dtype)
    if not least - 0.5 <= quant.zero_point + filler / quant.scale < most + 0.5:
        if not context.results.is_quantized(node):
            return Reject(f"it pads with {filler:g}, which its input's {dtype} range does not reach")
        # The result's own range saturates the filler as its quantize node does.
        value = _in_result_quant(node, context, value)
    quant = context.quant(value)
    stored = tuple((max(amounts[axis][0], 0), max(amounts[axis][1], 0)) for axis in value.order)
    shape = shape_of(node)
    name = pad(context, value.tensor, stored, context.pad_value(quant, filler, dtype))
    return _in_result_quant(node, context, Value(name, shape, value.order, shape))


def _cropped(node: Node, context: Context, value: Value, amounts: Amounts) -> Value:
    begins = [max(-before, 0) for before, _ in amounts]
    shape: Shape = tuple(
        extent + min(before, 0) + min(after, 0) for extent, (before, after) in zip(value.shape, amounts, strict=True)
    )
    if shape == value.shape:
        return value
    stored = tuple(shape[axis] for axis in value.order)
    begin = context.add_integers(f"{node.name}_begin", [begins[axis] for axis in value.order])
    size = context.add_integers(f"{node.name}_rest", stored)
    name = context.emit("slice", (value.tensor, begin, size), stored, context.quant(value), f"{node.name}_rest")
    return Value(name, shape, value.order, shape)


def _in_result_quant(node: Node, context: Context, value: Value) -> Value:
    return context.requantized(value, context.results.quant(node), f"{node.name}_requantized")
