# SPDX-License-Identifier: BSD-3-Clause
"""Pools of sequences and volumes as pools of images; adaptive maxima as maxima of slices; windows as copies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from openneutron.pytorch.operators.rules.tables import KEPT, Keep, decomposes

_aten = torch.ops.aten


def by_planes(volume: Tensor, on_image: Callable[[Tensor], Tensor], on_depth: Callable[[Tensor], Tensor]) -> Tensor:
    """Return what ``on_image`` makes of each plane, and then ``on_depth`` along the planes, as rows, and all their
    points, as columns."""
    batches = volume.shape[0] if volume.dim() == 5 else 1
    channels, depth, height, width = volume.shape[-4:]
    planes = on_image(volume.reshape(batches, channels * depth, height, width))
    rows, columns = planes.shape[-2:]
    result = on_depth(planes.reshape(batches, channels, depth, rows * columns))
    return result.reshape(*volume.shape[:-3], result.shape[-2], rows, columns)


NEUTRAL = {"kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1}
"""The numbers of a window along an axis on which the window does nothing."""


def _of_volumes(on_images: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the pool of volumes that pools the planes, and then the depth as rows."""

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
def adaptive_max_pool(self: Tensor, output_size: list[int]) -> tuple[Tensor, Tensor | None]:
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
    """Return the decomposition of a maximum pool whose second result is the positions."""
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
    """Adaptive maxima along rows (-2) or columns (-1): a pool for each run of windows of one size and distance."""
    extent = x.shape[dim]
    windows = adaptive_windows(extent, outputs)
    pools = []
    for first, last, kernel, stride in _runs([(window.start, window.stop) for window in windows]):
        part = x if (first, last) == (0, extent) else _aten.slice.Tensor(x, dim, first, last)
        kernels, strides = ([kernel, 1], [stride, 1]) if dim == -2 else ([1, kernel], [1, stride])
        pools.append(part if kernel == stride == 1 else _aten.max_pool2d.default(part, kernels, strides))
    return pools[0] if len(pools) == 1 else torch.cat(pools, dim)


def _runs(windows: list[tuple[int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """Yield (first position, last, kernel, stride) of windows in a row that are one pool."""
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
"""Slices that one call may become."""


@decomposes("aten.unfold.default")
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor | Keep:
    """Return windows of one dimension as a new last one: a view where they lie side by side, else slices with steps."""
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
    """Return windows as columns: a depthwise convolution with a one for each place of the window."""
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
    """Return columns back to windows, which add up where they overlap: the transpose of ``im2col``."""
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
"""The limit on comparisons of an input's element with a window's maximum, each a byte of the arena; a number of our own
choice."""

Windows = Sequence[range]
"""The positions of each window along an axis."""


def adaptive_windows(extent: int, outputs: int) -> list[range]:
    """Return the windows of an adaptive pool along one axis, with PyTorch's boundaries."""
    return [range(i * extent // outputs, -(-(i + 1) * extent // outputs)) for i in range(outputs)]


def strided_windows(extent: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int) -> list[range]:
    """Return the windows of a maximum pool along one axis, without positions in the padding."""
    firsts = [i * stride - padding for i in range(outputs)]
    # The first position inside the input is a whole number of dilations behind the window's first.
    inside = [first if first >= 0 else first % dilation for first in firsts]
    ends = [min(first + dilation * (kernel - 1) + 1, extent) for first in firsts]
    return [range(start, end, dilation) for start, end in zip(inside, ends, strict=True)]


def first_positions(x: Tensor, largest: Tensor, windows: Sequence[Windows]) -> Tensor | None:
    """Return int64 positions with ``largest``'s shape in the flattened last dimensions of x, one of ``windows`` for
    each axis.

    Returns None where that takes too many comparisons. ``largest`` has the quantization of x, so that equal values stay
    equal.
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
