# SPDX-License-Identifier: BSD-3-Clause
"""Pools of sequences, images and volumes.

Pools of sequences and volumes become pools of images, adaptive maxima become maxima of slices, and windows become copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from openneutron.pytorch.graph.program import (
    GETITEM,
    Change,
    Reject,
    Rejected,
    arguments_of,
    is_move,
    op_name,
    pair,
    shape_of,
)
from openneutron.pytorch.operators.annotations import AnnotationRule, Result, annotates
from openneutron.pytorch.operators.convolution import Window, padded
from openneutron.pytorch.operators.reduction import add_windows, mean_over, most_weight
from openneutron.pytorch.operators.rules.context import Context, Shape, Value, ends_of, take
from openneutron.pytorch.operators.rules.tables import KEPT, Keep, Layout, decomposes, lowers
from openneutron.pytorch.operators.separable import (
    Separable,
    adaptive_average_pool,
    apply,
    average_pool,
    litert_padding,
    window_of,
)


def _size(value: object) -> tuple[int, int] | None:
    """Return the numbers of rows and columns of a node's result, or None if they are symbolic."""
    assert isinstance(value, Node)
    rows, columns = value.meta["val"].shape[-2:]
    return (rows, columns) if isinstance(rows, int) and isinstance(columns, int) else None


@dataclass(frozen=True, slots=True)
class Pool:
    """An average pool of images as two matrices, one for rows and one for columns, and its window."""

    averages: Separable
    window: Window

    @property
    def values(self) -> int:
        """Return the number of values in the mean of one result."""
        return math.prod(self.window.kernel)


def pool_of(node: Node) -> Pool | None:
    """Return the average pool of a node, or None if the extents of its images are symbolic."""
    given = arguments_of(node)
    size, result = _size(given["self"]), _size(node)
    if size is None or result is None:
        return None
    if "kernel_size" in given:
        kernel = pair(given["kernel_size"])
        window = Window(kernel, pair(given["stride"], kernel), pair(given["padding"]))
        return Pool(average_pool(given, size), window)
    averages = adaptive_average_pool(size, result)
    kernel, stride = zip(window_of(averages.rows), window_of(averages.columns), strict=True)
    return Pool(averages, Window(kernel, stride, (0, 0)))


_POOLS = ("aten.avg_pool2d.default", "aten.adaptive_avg_pool2d.default")


def _average_rescales(node: Node) -> bool:
    pool = pool_of(node)
    return pool is not None and _rescales(pool, _values_of_chain(node))


def _values_of_chain(node: Node) -> int:
    """Return the number of input values whose mean is one result. Pools directly before and after this one count too.

    Such a chain of pools comes, for example, from the decomposition of a 3-D pool.
    """
    chain = [node]
    for beside in (_source_pool, _user_pool):
        pool = beside(node)
        while pool is not None:
            chain.append(pool)
            pool = beside(pool)
    return math.prod(pool.values for pool in map(pool_of, chain) if pool is not None)


def _source_pool(node: Node) -> Node | None:
    """Return the average pool whose result a pool reads through views, if no other node reads that result."""
    source = node.args[0]
    while isinstance(source, Node) and is_move(source, Change.VIEW) and len(source.users) == 1:
        source = source.args[0]
    if isinstance(source, Node) and str(source.target) in _POOLS and len(source.users) == 1:
        return source
    return None


def _user_pool(node: Node) -> Node | None:
    """Return the average pool that reads a pool's result through views, if no other node reads the result."""
    users = tuple(node.users)
    while len(users) == 1 and is_move(users[0], Change.VIEW):
        users = tuple(users[0].users)
    return users[0] if len(users) == 1 and str(users[0].target) in _POOLS else None


FINER_FROM = 5
"""The number of values under a window from which on an average pool gets a scale of its own and becomes a depthwise convolution.

On noise, this gains 3 dB for 3x3, 5 for 4x4, 13 for 8x8, and less than 2 for 2x2.
"""


def _rescales(pool: Pool, values: int) -> bool:
    """Return whether the result of a pool gets a scale of its own, finer than that of the input. values: the number
    of input values whose mean is one result.

    It does if the pool averages whole axes, or if it can be computed with one rounding. A small window that LiteRT's
    own pool supports keeps the input's scale, because a finer scale gains little there.
    """
    if pool.averages.mean_axes:
        return True
    is_window = pool.averages.is_window(pool.window)
    if litert_padding(pool.averages, pool.window) is not None:
        return is_window and pool.values > 1 and values >= FINER_FROM
    return is_window or pool.averages.fits_whole


annotates(dict.fromkeys(_POOLS, AnnotationRule(result=Result.SHARED, own_if=_average_rescales)))


_aten = torch.ops.aten


def by_planes(volume: Tensor, on_image: Callable[[Tensor], Tensor], on_depth: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply ``on_image`` to each plane of a volume, and then ``on_depth`` along the depth; return the resulting volume.

    ``on_depth`` gets an image for each channel, with a row for each plane and a column for each point of a plane.
    """
    batches = volume.shape[0] if volume.dim() == 5 else 1
    channels, depth, height, width = volume.shape[-4:]
    planes = on_image(volume.reshape(batches, channels * depth, height, width))
    rows, columns = planes.shape[-2:]
    result = on_depth(planes.reshape(batches, channels, depth, rows * columns))
    return result.reshape(*volume.shape[:-3], result.shape[-2], rows, columns)


NEUTRAL = {"kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1}
"""The window parameters along an axis on which the window has one element and changes nothing."""


def _of_volumes(on_images: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the decomposition of a pool of volumes: ``on_images`` pools the planes, and then the depth as rows of images."""

    def rule(**given: Any) -> Tensor:
        volume = given.pop("self")
        given["stride"] = given["stride"] or given["kernel_size"]
        of_planes, of_depth = dict(given), dict(given)
        for name in NEUTRAL.keys() & given.keys():
            depth, *image = given[name] if len(given[name]) == 3 else [given[name][0]] * 3
            of_planes[name], of_depth[name] = image, [depth, NEUTRAL[name]]
        if given.get("divisor_override"):
            of_planes["divisor_override"] = 1  # sums over the planes, divided along the depth
        return by_planes(volume, lambda x: on_images(x, **of_planes), lambda x: on_images(x, **of_depth))

    return rule


decomposes("aten.avg_pool3d.default")(_of_volumes(_aten.avg_pool2d.default))
decomposes("aten.max_pool3d.default")(_of_volumes(_aten.max_pool2d.default))


@decomposes("aten.adaptive_avg_pool1d.default")
def adaptive_avg_pool1d(self: Tensor, output_size: list[int]) -> Tensor:
    return _aten.adaptive_avg_pool2d.default(self.unsqueeze(-2), [1, *output_size]).squeeze(-2)


@decomposes("aten.adaptive_avg_pool3d.default")
def adaptive_avg_pool3d(self: Tensor, output_size: list[int]) -> Tensor:
    if list(output_size) == [1, 1, 1]:
        return self.mean((-3, -2, -1), keepdim=True)
    depth, *image = output_size

    def on_depth(x: Tensor) -> Tensor:
        return _aten.adaptive_avg_pool2d.default(x, [depth, x.shape[-1]])

    return by_planes(self, lambda x: _aten.adaptive_avg_pool2d.default(x, image), on_depth)


@decomposes(*(f"aten.adaptive_max_pool{n}d.default" for n in (1, 2, 3)))
def decompose_adaptive_max_pool(self: Tensor, output_size: list[int]) -> tuple[Tensor, Tensor | None]:
    *outer, columns = output_size

    def on_image(x: Tensor) -> Tensor:
        return _largest(_largest(x, -2, outer[-1]) if outer else x, -1, columns)

    if not outer:
        largest = on_image(self.unsqueeze(-2)).squeeze(-2)
    elif len(outer) == 1:
        largest = on_image(self)
    else:
        largest = by_planes(self, on_image, lambda x: _largest(x, -2, outer[0]))
    windows = [adaptive_windows(*axis) for axis in zip(self.shape[-len(output_size) :], output_size, strict=True)]
    return largest, first_positions(self, largest, windows)


def _with_positions(dimensions: int) -> Callable[..., tuple[Tensor, Tensor | None]]:
    """Return the decomposition of a max pool that also returns the positions of the maxima. The positions are None if
    they take more than ``MOST_COMPARED`` comparisons. Then a call is decomposed only if nothing reads its positions."""
    pool = getattr(_aten, f"max_pool{dimensions}d").default

    def max_pool(
        self: Tensor,
        kernel_size: list[int],
        stride: list[int],
        padding: list[int],
        dilation: list[int],
        ceil_mode: bool,
    ) -> tuple[Tensor, Tensor | None]:
        given = (kernel_size, stride or kernel_size, padding, dilation)
        numbers = [list(item) if len(item) == dimensions else [item[0]] * dimensions for item in given]
        largest = pool(self, *numbers, ceil_mode)
        extents = zip(self.shape[-dimensions:], largest.shape[-dimensions:], *numbers, strict=True)
        return largest, first_positions(self, largest, [strided_windows(*axis) for axis in extents])

    return max_pool


for _dimensions in (1, 2, 3):
    decomposes(f"aten.max_pool{_dimensions}d_with_indices.default")(_with_positions(_dimensions))


def _largest(x: Tensor, dim: int, outputs: int) -> Tensor:
    """Return adaptive maxima along rows (-2) or columns (-1), by one max pool for each run of windows with equal sizes and distances."""
    extent = x.shape[dim]
    windows = adaptive_windows(extent, outputs)
    pools = []
    for first, last, kernel, stride in _runs([(window.start, window.stop) for window in windows]):
        part = x if (first, last) == (0, extent) else _aten.slice.Tensor(x, dim, first, last)
        kernels, strides = ([kernel, 1], [stride, 1]) if dim == -2 else ([1, kernel], [1, stride])
        pools.append(part if kernel == stride == 1 else _aten.max_pool2d.default(part, kernels, strides))
    return pools[0] if len(pools) == 1 else torch.cat(pools, dim)


def _runs(windows: list[tuple[int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """Yield (start, end, kernel, stride) for each run of consecutive windows that one pool computes."""
    while windows:
        (first, end), *rest = windows
        kernel, stride, count = end - first, 1, 1
        if rest and rest[0][1] - rest[0][0] == kernel and rest[0][0] > first:
            stride = rest[0][0] - first
            while count < len(windows) and windows[count] == (first + count * stride, end + count * stride):
                count += 1
        yield first, windows[count - 1][1], kernel, stride
        windows = windows[count:]


MOST_PIECES = 64
"""The limit on slices that replace one call."""


@decomposes("aten.unfold.default")
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor | Keep:
    """Return the windows of one dimension along a new last dimension: as a view if the windows are adjacent, else from slices.

    Return KEPT if that takes more than ``MOST_PIECES`` slices.
    """
    if not self.dim():  # ExecuTorch's kernel ends the process for a scalar
        return self.reshape(1) if size == 1 else KEPT
    dim = dimension % self.dim()
    count = (self.shape[dim] - size) // step + 1
    if step == size:
        whole = self if count * size == self.shape[dim] else _aten.slice.Tensor(self, dim, 0, count * size)
        split = whole.reshape(*self.shape[:dim], count, size, *self.shape[dim + 1 :])
        return split.permute(*(i for i in range(self.dim() + 1) if i != dim + 1), dim + 1)
    if min(size, count) > MOST_PIECES:
        return KEPT
    if count < size:
        windows = [_aten.slice.Tensor(self, dim, i * step, i * step + size) for i in range(count)]
        stacked = torch.cat([window.unsqueeze(dim) for window in windows], dim)
        return stacked.permute(*(i for i in range(self.dim() + 1) if i != dim + 1), dim + 1)
    taps = [_aten.slice.Tensor(self, dim, i, i + (count - 1) * step + 1, step) for i in range(size)]
    return torch.cat([tap.unsqueeze(-1) for tap in taps], -1)


@decomposes("aten.im2col.default")
def im2col(self: Tensor, kernel_size: list[int], dilation: list[int], padding: list[int], stride: list[int]) -> Tensor:
    """Return windows as columns, by a depthwise convolution whose filters each select one position of the window."""
    image = self if self.dim() == 4 else self.unsqueeze(0)
    channels, taps = image.shape[1], kernel_size[0] * kernel_size[1]
    places = torch.eye(taps).reshape(taps, 1, *kernel_size).repeat(channels, 1, 1, 1)
    window: Any = (stride, padding, dilation, channels)
    columns = _aten.conv2d.default(image, places, None, *window).flatten(2)
    return columns if self.dim() == 4 else columns.squeeze(0)


@decomposes("aten.col2im.default")
def col2im(
    self: Tensor,
    output_size: list[int],
    kernel_size: list[int],
    dilation: list[int],
    padding: list[int],
    stride: list[int],
) -> Tensor:
    """Return the image that is the sum of its windows, given as columns: the transpose of ``im2col``."""
    columns = self if self.dim() == 3 else self.unsqueeze(0)
    taps = kernel_size[0] * kernel_size[1]
    channels = columns.shape[1] // taps
    axes = list(zip(output_size, kernel_size, dilation, padding, stride, strict=True))
    reaches = [extent + 2 * before - apart * (kernel - 1) - 1 for extent, kernel, apart, before, _ in axes]
    counts = [reach // step + 1 for reach, (*_, step) in zip(reaches, axes, strict=True)]
    behind = [reach % step for reach, (*_, step) in zip(reaches, axes, strict=True)]
    places = torch.eye(taps).reshape(taps, 1, *kernel_size).repeat(channels, 1, 1, 1)
    image = columns.reshape(columns.shape[0], channels * taps, *counts)
    window: Any = (stride, padding, behind, channels, dilation)
    result = _aten.conv_transpose2d.input(image, places, None, *window)
    return result if self.dim() == 3 else result.squeeze(0)


MOST_COMPARED = 1 << 19
"""The limit on comparisons of elements with the maximum of their window. Each comparison takes a byte of the arena. The number is our
choice."""

Windows = Sequence[range]
"""The positions of each window along an axis."""


def adaptive_windows(extent: int, outputs: int) -> list[range]:
    """Return the windows of an adaptive pool along one axis, with PyTorch's boundaries."""
    return [range(i * extent // outputs, -(-(i + 1) * extent // outputs)) for i in range(outputs)]


def strided_windows(extent: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int) -> list[range]:
    """Return the windows of a maximum pool along one axis, without positions in the padding."""
    firsts = [i * stride - padding for i in range(outputs)]
    # The first position inside the input is a whole number of dilations after the first one of the window.
    inside = [first if first >= 0 else first % dilation for first in firsts]
    ends = [min(first + dilation * (kernel - 1) + 1, extent) for first in firsts]
    return [range(start, end, dilation) for start, end in zip(inside, ends, strict=True)]


def first_positions(x: Tensor, largest: Tensor, windows: Sequence[Windows]) -> Tensor | None:
    """Return the position of the first maximum of each window, as int64 in the shape of ``largest``. Return None if
    that takes too many comparisons.

    A position is an index into the flattened last dimensions of ``x``. ``windows`` has the windows along each of
    these dimensions. ``largest``, the maxima, has the quantization of ``x``, so that equal values stay equal.
    """
    image = x.shape[-len(windows) :]
    elements, outputs = math.prod(image), math.prod(len(axis) for axis in windows)
    if x.numel() * outputs > MOST_COMPARED:
        return None
    inside = _inside(windows, image)
    is_largest = _aten.eq.Tensor(x.reshape(-1, 1, elements), largest.reshape(-1, outputs, 1))
    hits = _aten.where.self(_aten.logical_and.default(is_largest, inside), torch.ones(()), torch.zeros(()))
    return _aten.argmax.default(hits, -1).reshape(largest.shape)


def _inside(windows: Sequence[Windows], image: Sequence[int]) -> Tensor:
    """Return a constant bool [windows, positions] that marks the positions of each window."""
    found = torch.ones(1, 1)
    for axis, extent in zip(windows, image, strict=True):
        places = torch.arange(extent)
        rows = [
            (places >= taken.start) & (places < taken.stop) & ((places - taken.start) % taken.step == 0)
            for taken in axis
        ]
        both = found[:, None, :, None] * torch.stack(rows)[None, :, None, :].float()
        found = both.reshape(both.shape[0] * both.shape[1], -1)
    return found > 0.5


INDICES = Reject(
    f"its indices are used; for them at most {MOST_COMPARED} pairs of an element and a window are compared"
)


def indices_used(node: Node) -> Reject | None:
    """Return a reason against a maximum pool whose indices are read, or None."""
    return INDICES if any(op_name(user) == GETITEM and user.args[1] != 0 for user in node.users) else None


def _pooled(node: Node, context: Context, op: str, source: str, padding: str, window: Window, shape: Shape) -> Value:
    """Add a pool, and return its result with the quantization of the node's result.

    The result of LiteRT's pools has the quantization of the input, so that a QUANTIZE follows if the two differ.
    """
    quant = context.tensors[source].quant
    assert quant is not None
    wanted = context.results.quant(node)
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
    emits=("max_pool_2d", "pad", "padv2", "slice", "gather"),
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
    """Reject an adaptive maximum pool that was not decomposed."""
    del node, context
    return Reject("it is still whole", "Quantize with NeutronQuantizer, which makes maxima of slices of it.")


def _side_by_side(node: Node, context: Context, source: str, window: Window, result: Shape) -> str:
    """Return an NHWC tensor in which the elements of each dilated window are copied next to each other, for a max
    pool without dilation.

    An element in the padding is replaced by an element of the same window inside of the image, which does not change
    the maximum. Raises Rejected for a window that lies wholly in the padding.
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
    emits=("depthwise_conv_2d", "fully_connected", "batch_matmul", "average_pool_2d", "mean", "pad", "padv2"),
)
def average(node: Node, context: Context) -> Value | Reject:
    data, shape = context.value(arguments_of(node)["self"]), shape_of(node)
    data, pool = context.viewed(data, _image_shape(data.shape)), pool_of(node)
    assert pool is not None
    return context.viewed(_averaged(node, context, data, pool.averages, pool.window, _image_shape(shape)), shape)


def _averaged(node: Node, context: Context, data: Value, averages: Separable, window: Window, image: Shape) -> Value:
    """Lower an average pool by the first of four methods that computes it.

    The methods are: MEAN, for whole rows, columns or images; LiteRT's own pool, if it has such windows and the result
    has the input's quantization; a depthwise convolution, if all values have equal weights; products with matrices. A
    depthwise convolution allows any scale of the result, and its padding costs nothing.
    """
    if averages.mean_axes:
        return mean_over(node, context, data, tuple(2 + axis for axis in averages.mean_axes), image)
    quant = context.results.quant(node)
    padding = litert_padding(averages, window)
    if padding is not None and quant == context.quant(data):
        return _pooled(node, context, "average_pool_2d", context.nhwc(data), padding, window, image)
    if not averages.is_window(window):
        return apply(context, data, averages, quant, node.name)
    source, padding = padded(context, context.nhwc(data), window, image[2:])
    shape = (image[0], *image[2:], image[1])
    name = add_windows(
        *(
            node,
            context,
            source,
            window.kernel,
            shape,
            most_weight(math.prod(window.kernel)),
            averages.weight,
            quant,
            padding,
            window.stride,
        )
    )
    return context.from_nhwc(name, image)
