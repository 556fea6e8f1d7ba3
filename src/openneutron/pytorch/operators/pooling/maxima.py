# SPDX-License-Identifier: BSD-3-Clause
"""Positions of the largest values in windows: the first position whose value equals its window's maximum."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_aten = torch.ops.aten

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
