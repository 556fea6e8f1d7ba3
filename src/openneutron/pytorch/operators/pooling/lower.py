# SPDX-License-Identifier: BSD-3-Clause
"""Pools."""

from __future__ import annotations

import numpy as np
from torch.fx import Node

from openneutron.ir import per_channel
from openneutron.pytorch.graph.program import GETITEM, Reject, Rejected, arguments_of, op_name, pair, shape_of
from openneutron.pytorch.operators.convolution.lower import Window, bias_of, padded
from openneutron.pytorch.operators.pooling.decompose import MOST_COMPARED
from openneutron.pytorch.operators.pooling.quantize import pool_of
from openneutron.pytorch.operators.reduction.lower import mean_over
from openneutron.pytorch.operators.rules.context import Context, take
from openneutron.pytorch.operators.rules.results import Shape, Value, ends_of
from openneutron.pytorch.operators.rules.tables import Layout, lowers
from openneutron.pytorch.operators.separable.sums import Separable, apply, litert_padding

INDICES = Reject(
    f"its indices are used; for them at most {MOST_COMPARED} pairs of an element and a window are compared"
)


def indices_used(node: Node) -> Reject | None:
    """Object to a maximum pool of which another result than the first is read."""
    return INDICES if any(op_name(user) == GETITEM and user.args[1] != 0 for user in node.users) else None


def _pooled(node: Node, context: Context, op: str, source: str, padding: str, window: Window, shape: Shape) -> Value:
    """Return a pool in its input's quantization, which is what LiteRT's pools know, and then in the result's."""
    quant = context.tensors[source].quant
    assert quant is not None
    wanted = context.result_quant(node)
    name = context.emit(
        op,
        (source,),
        (shape[0], *shape[2:], shape[1]),
        quant,
        node.name,
        padding=padding,
        stride_h=window.stride[0],
        stride_w=window.stride[1],
        kernel_h=window.kernel[0],
        kernel_w=window.kernel[1],
    )
    return context.requantized(context.from_nhwc(name, shape), wanted, f"{node.name}_requantized")


def _image_shape(shape: Shape) -> Shape:
    return (1, *shape) if len(shape) == 3 else shape


@lowers(
    "aten.max_pool2d.default",
    "aten.max_pool2d_with_indices.default",
    moves=True,
    layout=Layout.NHWC,
    against=indices_used,
)
def max_pool(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    if op_name(node).startswith("aten.max_pool2d_with_indices"):
        shape = tuple(int(extent) for extent in node.meta["val"][0].shape)
    else:
        shape = shape_of(node)
    kernel, image = pair(given["kernel_size"]), _image_shape(shape)
    window = Window(kernel, pair(given["stride"], kernel), pair(given["padding"]), pair(given.get("dilation", 1)))
    data = context.value(given["self"])
    source = context.nhwc(context.viewed(data, _image_shape(data.shape)))
    if window.dilation == (1, 1):
        source, padding = padded(context, source, window, image[2:], ends_of(context.dtype(data))[0])
    else:
        source = _side_by_side(node, context, source, window, image[2:])
        window, padding = Window(window.kernel, window.kernel, (0, 0)), "VALID"
    return context.viewed(_pooled(node, context, "max_pool_2d", source, padding, window, image), shape)


@lowers(*(f"aten.adaptive_max_pool{n}d.default" for n in (1, 2, 3)), against=indices_used)
def adaptive_max_pool(node: Node, context: Context) -> Value | Reject:
    """Lower the adaptive pools that are not decomposed."""
    del node, context
    return Reject("it is still whole", "Quantize with NeutronQuantizer, which makes maxima of slices of it.")


def _side_by_side(node: Node, context: Context, source: str, window: Window, result: Shape) -> str:
    """Return the NHWC tensor with the rows and columns that each window looks at next to each other.

    A tap outside the image is one that is inside: that does not change the largest.
    """
    for axis in (1, 2):
        extent, place = context.tensors[source].shape[axis], axis - 1
        kernel, dilation = window.kernel[place], window.dilation[place]
        taken: list[int] = []
        for output in range(result[place]):
            first = output * window.stride[place] - window.before[place]
            taps = range(first, first + kernel * dilation, dilation)
            inside = [tap for tap in taps if 0 <= tap < extent]
            if not inside:
                raise Rejected("one of its windows lies wholly in the padding, where the maximum is minus infinity")
            taken += [tap if tap in inside else inside[0] for tap in taps]
        source = take(context, source, axis, taken, f"{node.name}_windows")
    return source


@lowers(
    "aten.avg_pool2d.default",
    "aten.adaptive_avg_pool2d.default",
    "aten._adaptive_avg_pool2d.default",
    layout=Layout.NHWC,
)
def average(node: Node, context: Context) -> Value | Reject:
    data, shape = context.value(arguments_of(node)["self"]), shape_of(node)
    data, pool = context.viewed(data, _image_shape(data.shape)), pool_of(node)
    assert pool is not None
    return context.viewed(_averaged(node, context, data, pool.averages, pool.window, _image_shape(shape)), shape)


def _averaged(node: Node, context: Context, data: Value, averages: Separable, window: Window, image: Shape) -> Value:
    """Return means of whole rows, columns or images as such. LiteRT's own pool where it means the same and keeps the
    quantization. Otherwise a depthwise convolution, where all values have one weight: it takes any scale, and its
    padding costs nothing. Otherwise matrices."""
    if averages.mean_axes:
        return mean_over(node, context, data, tuple(2 + axis for axis in averages.mean_axes), image)
    quant = context.result_quant(node)
    padding = litert_padding(averages, window)
    if padding is not None and quant == context.quant(data):
        return _pooled(node, context, "average_pool_2d", context.nhwc(data), padding, window, image)
    if not averages.is_window(window):
        return apply(context, data, averages, quant, node.name)
    source, padding = padded(context, context.nhwc(data), window, image[2:])
    channels = image[1]
    weights = context.add_constant(
        f"{node.name}_ones",
        np.ones((1, *window.kernel, channels), np.int8),
        per_channel(np.full(channels, averages.weight), 3),
    )
    name = context.emit(
        "depthwise_conv_2d",
        (source, weights, bias_of(context, None, source, weights, channels)),
        (image[0], *image[2:], channels),
        quant,
        node.name,
        padding=padding,
        stride_h=window.stride[0],
        stride_w=window.stride[1],
    )
    return context.from_nhwc(name, image)
