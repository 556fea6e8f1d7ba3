# SPDX-License-Identifier: BSD-3-Clause
"""Pools and means."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from openneutron.pytorch.lower.arguments import arguments_of, pair
from openneutron.pytorch.lower.clamps import INT8_MIN
from openneutron.pytorch.lower.context import Context
from openneutron.pytorch.lower.convolution import Window, pad, padded
from openneutron.pytorch.lower.program import GETITEM, op_name, shape_of
from openneutron.pytorch.lower.rules import Layout, Reject, lowers
from openneutron.pytorch.lower.values import Shape, Value


def _pooled(node: Node, context: Context, op: str, source: str, padding: str, window: Window, shape: Shape) -> Value:
    """A pool in its input's quantization, which is what LiteRT's pools know, and then in the result's."""
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


def _window(given: dict[str, Any]) -> Window:
    kernel = pair(given["kernel_size"])
    return Window(kernel, pair(given["stride"], kernel), pair(given["padding"]), pair(given.get("dilation", 1)))


def _image_shape(shape: Shape) -> Shape:
    return (1, *shape) if len(shape) == 3 else shape


@lowers("aten.max_pool2d.default", "aten.max_pool2d_with_indices.default", moves=True, layout=Layout.NHWC)
def max_pool(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    if op_name(node).startswith("aten.max_pool2d_with_indices"):
        if any(user.args[1] != 0 for user in node.users if op_name(user) == GETITEM):
            return Reject("its indices are used; only the maxima can be computed")
        shape = tuple(int(extent) for extent in node.meta["val"][0].shape)
    else:
        shape = shape_of(node)
    window = _window(given)
    if window.dilation != (1, 1):
        return Reject(f"its dilation is {window.dilation}; it must be 1")
    data = context.value(given["self"])
    source = context.nhwc(context.viewed(data, _image_shape(data.shape)))
    source, padding = padded(context, source, window, _image_shape(shape)[2:], INT8_MIN)
    return context.viewed(_pooled(node, context, "max_pool_2d", source, padding, window, _image_shape(shape)), shape)


@lowers("aten.avg_pool2d.default", layout=Layout.NHWC)
def average_pool(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    window, shape = _window(given), shape_of(node)
    image = _image_shape(shape)
    divisor = given["divisor_override"]
    if divisor is not None and divisor != window.kernel[0] * window.kernel[1]:
        return Reject(f"divisor_override is {divisor}; the window's {window.kernel} is what there is")
    data = context.value(given["self"])
    source = context.nhwc(context.viewed(data, _image_shape(data.shape)))
    size = context.tensors[source].shape[1:3]
    behind = window.behind(size, image[2:])
    if window.is_valid(size, image[2:]):
        padding = "VALID"
    elif divisor is not None:
        # LiteRT divides by the taps inside the image: every window divides by its area only where nothing is outside.
        source = pad(context, source, ((0, 0), *zip(window.before, behind, strict=True), (0, 0)))
        padding = "VALID"
    elif any(window.before) and given["count_include_pad"]:
        if any(after > before for after, before in zip(behind, window.before, strict=True)):
            return Reject("ceil_mode makes windows that reach past the padding, which do not count")
        source = pad(context, source, ((0, 0), *zip(window.before, behind, strict=True), (0, 0)))
        padding = "VALID"
    elif window.is_same(size, image[2:]):
        padding = "SAME"
    else:
        return Reject("its padding is not counted and is neither VALID nor SAME; pass count_include_pad=True or pad=0")
    return context.viewed(_pooled(node, context, "average_pool_2d", source, padding, window, image), shape)


@lowers("aten.adaptive_avg_pool2d.default", "aten._adaptive_avg_pool2d.default", layout=Layout.NHWC)
def adaptive_average_pool(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    data, shape = context.value(given["self"]), shape_of(node)
    image, result = _image_shape(data.shape), _image_shape(shape)
    if result[2:] == (1, 1):
        return context.viewed(_mean(node, context, context.viewed(data, image), (2, 3), result), shape)
    if image[2] % result[2] or image[3] % result[3]:
        return Reject(f"it makes {list(result[2:])} of {list(image[2:])} rows and columns; each must divide the other")
    kernel = (image[2] // result[2], image[3] // result[3])
    source = context.nhwc(context.viewed(data, image))
    window = Window(kernel, kernel, (0, 0))
    return context.viewed(_pooled(node, context, "average_pool_2d", source, "VALID", window, result), shape)


@lowers("aten.mean.dim", layout=Layout.OWN)
def mean(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    data = context.settled(context.value(given["self"]))
    rank = len(data.shape)
    dims = tuple(sorted({dim % rank for dim in (given["dim"] or range(rank))}))
    kept = tuple(1 if axis in dims else extent for axis, extent in enumerate(data.shape))
    return context.viewed(_mean(node, context, data, dims, kept), shape_of(node))


def _mean(node: Node, context: Context, data: Value, dims: tuple[int, ...], shape: Shape) -> Value:
    """The mean over ``dims``, which stay as ones."""
    data = context.settled(data)
    quant = context.result_quant(node)
    order = data.order
    if len(order) == 4 and dims == (2, 3):
        data = context.from_nhwc(context.nhwc(data), data.shape)
        order = data.order
    axes = context.add_integers(f"{node.name}_axes", [place for place, axis in enumerate(order) if axis in dims])
    stored = tuple(shape[axis] for axis in order)
    name = context.emit("mean", (data.tensor, axes), stored, quant, node.name, keep_dims=True)
    return Value(name, shape, order, shape)
