# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions of volumes as convolutions of images: the taps along the depth become channels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from openneutron.pytorch.operators.rules.tables import decomposes

_aten = torch.ops.aten

Triple = Sequence[int]


@decomposes("aten.conv3d.default")
def conv3d(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Triple, padding: Triple, dilation: Triple, groups: int
) -> Tensor:
    """Compute a convolution of volumes as one convolution of images, with every output depth of every volume in the
    batch.

    The input channels are those of the depth's taps, concatenated, so that each output is one sum of products, as in
    three dimensions.
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
    """Compute a transposed convolution of volumes as one of images for each phase of the depth's stride.

    Output depth o is a sum over the taps k and the input depths i with i * stride + k * dilation = o + padding. All
    outputs of a phase have the same taps.
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
    """Return a number for each dimension; a single number holds for all three."""
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
    """Return ``count`` planes from ``start`` on, with zeros outside the volume; at least one plane is inside."""
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
    """Return the weights of a transposed convolution at some of the depth's taps, as those of images; zeros without a
    tap."""
    split = weight.reshape(groups, -1, *weight.shape[1:])
    chosen = [split[:, :, :, k] for k in taps] or [torch.zeros_like(split[:, :, :, 0])]
    return _aten.cat.default(chosen, 1).reshape(-1, weight.shape[1], *weight.shape[3:])
