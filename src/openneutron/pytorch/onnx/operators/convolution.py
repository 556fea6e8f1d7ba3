# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions and poolings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from openneutron.pytorch.onnx.operators.table import NodeView, Refused, Values, converts

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def _list(node: NodeView, name: str, rank: int, default: int = 1) -> list[int]:
    return list(node.get(name, [default] * rank))


def _paddings(
    node: NodeView, extents: list[int], kernel: list[int], strides: list[int], dilations: list[int]
) -> list[tuple[int, int]]:
    """Return the padding before and after each axis of space."""
    mode, rank = node.get("auto_pad", "NOTSET"), len(kernel)
    if mode == "VALID":
        return [(0, 0)] * rank
    if mode == "NOTSET":
        pads = _list(node, "pads", 2 * rank, 0)
        return list(zip(pads[:rank], pads[rank:], strict=True))
    pairs = []
    for extent, size, stride, dilation in zip(extents, kernel, strides, dilations, strict=True):
        total = max((-(-extent // stride) - 1) * stride + (size - 1) * dilation + 1 - extent, 0)
        small, large = total // 2, total - total // 2
        pairs.append((small, large) if mode == "SAME_UPPER" else (large, small))
    return pairs


def _padded(x: Tensor, pairs: list[tuple[int, int]], value: float = 0.0) -> tuple[Tensor, list[int]]:
    """Return the operand and the padding that the operator itself has to add, one number for both sides of each axis.

    If the padding of any axis differs between its sides, the result is the operand already padded with ``value``, and
    0 for each axis.
    """
    if all(before == after for before, after in pairs):
        return x, [before for before, _ in pairs]
    return F.pad(x, [side for pair in reversed(pairs) for side in pair], value=value), [0] * len(pairs)


@converts("Conv")
def _conv(node: NodeView, x: Tensor, weights: Tensor, bias: Tensor | None = None) -> Values:
    rank = x.dim() - 2
    if rank not in _CONV:
        raise Refused(f"has {rank} axes of space, of at most 3")
    strides, dilations = _list(node, "strides", rank), _list(node, "dilations", rank)
    pairs = _paddings(node, list(x.shape[2:]), list(weights.shape[2:]), strides, dilations)
    x, pad = _padded(x, pairs)
    return _CONV[rank](x, weights, bias, strides, pad, dilations, node.get("group", 1))


@converts("ConvTranspose")
def _conv_transpose(node: NodeView, x: Tensor, weights: Tensor, bias: Tensor | None = None) -> Values:
    """Convert to PyTorch's transposed convolution.

    PyTorch does not take padding that is negative or differs between both sides of an axis, or a large output
    padding. In these cases the convolution runs without padding, and its result is cropped or padded.
    """
    rank = x.dim() - 2
    if rank not in _TRANSPOSED:
        raise Refused(f"has {rank} axes of space, of at most 3")
    strides, dilations = _list(node, "strides", rank), _list(node, "dilations", rank)
    more, group = _list(node, "output_padding", rank, 0), node.get("group", 1)
    kernel, extents = list(weights.shape[2:]), list(x.shape[2:])
    whole = [
        (n - 1) * s + (k - 1) * d + 1 + m
        for n, s, k, d, m in zip(extents, strides, kernel, dilations, more, strict=True)
    ]
    mode, wanted = node.get("auto_pad", "NOTSET"), node.get("output_shape")
    if wanted is not None or mode.startswith("SAME"):
        sizes = wanted[-rank:] if wanted is not None else [n * s for n, s in zip(extents, strides, strict=True)]
        pairs = []
        for total in (size - want for size, want in zip(whole, sizes, strict=True)):
            half = total // 2
            pairs.append((half, total - half) if mode == "SAME_UPPER" else (total - half, half))
    else:
        pads = _list(node, "pads", 2 * rank, 0) if mode == "NOTSET" else [0] * (2 * rank)
        pairs = list(zip(pads[:rank], pads[rank:], strict=True))
    function = _TRANSPOSED[rank]
    if all(before == after >= 0 for before, after in pairs) and all(
        m < max(s, d) for m, s, d in zip(more, strides, dilations, strict=True)
    ):
        return function(x, weights, bias, strides, [before for before, _ in pairs], more, group, dilations)
    y = function(x, weights, None, strides, 0, 0, group, dilations)
    crops = [
        side for (before, after), m in reversed(list(zip(pairs, more, strict=True))) for side in (-before, m - after)
    ]
    y = F.pad(y, crops)
    return y if bias is None else y + bias.reshape(-1, *[1] * rank)


@converts("CausalConvWithState")
def _causal_conv(node: NodeView, x: Tensor, weights: Tensor, bias: Tensor | None = None, past: Any = None) -> Values:
    """Convert to a convolution of each channel behind the values of the past, or behind zeros. The last values are the next past."""
    size = weights.shape[-1] - 1
    if size:
        x = F.pad(x, (size, 0)) if past is None else torch.cat([past, x], -1)
    y = F.conv1d(x, weights, bias, groups=x.shape[1])
    return F.silu(y) if node.get("activation", "none") in ("silu", "swish") else y, x[..., x.shape[-1] - size :]


@converts("DeformConv")
def _deform_conv(
    node: NodeView, x: Tensor, weights: Tensor, offset: Tensor, bias: Tensor | None = None, mask: Tensor | None = None
) -> Values:
    """Convert to one sample of each element of each window, and a convolution of 1x1 elements of the samples."""
    if x.dim() != 4:
        raise Refused(f"has {x.dim() - 2} axes of space, of 2")
    (batch, channels, height, width), kernel = x.shape, weights.shape[2:]
    strides, dilations, pads = _list(node, "strides", 2), _list(node, "dilations", 2), _list(node, "pads", 4, 0)
    groups, taps, (rows, columns) = node.get("offset_group", 1), math.prod(kernel), offset.shape[2:]
    places = [
        (np.arange(size) * dilation)[:, None] + np.arange(count) * stride - pad
        for size, dilation, count, stride, pad in zip(kernel, dilations, (rows, columns), strides, pads, strict=False)
    ]
    across, down = (
        np.broadcast_to(place, (*kernel, rows, columns)).reshape(taps, rows, columns)
        for place in (places[1][None, :, None], places[0][:, None, :, None])
    )
    # Pixel p of n has its centre at (2 * p + 1) / n - 1 for grid_sample.
    windows = np.stack([(2 * across + 1) / width - 1, (2 * down + 1) / height - 1], -1).astype(np.float32)
    pixel = np.array([2 / width, 2 / height], np.float32)
    moved = offset.reshape(batch * groups, taps, 2, rows, columns).permute(0, 1, 3, 4, 2).flip(-1)
    grid = (moved * node.constant("pixel", pixel) + node.constant("windows", windows)).flatten(1, 2)
    samples = F.grid_sample(x.reshape(batch * groups, channels // groups, height, width), grid, align_corners=False)
    samples = samples.reshape(batch, groups, channels // groups, taps, rows, columns)
    if mask is not None:
        samples = samples * mask.reshape(batch, groups, 1, taps, rows, columns)
    return F.conv2d(
        samples.reshape(batch, channels * taps, rows, columns),
        weights.flatten(1)[:, :, None, None],
        bias,
        groups=node.get("group", 1),
    )


_MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_MEAN = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def _pool(node: NodeView, x: Tensor) -> tuple[list[int], list[int], list[int], list[tuple[int, int]], bool]:
    """Return the kernel, strides, dilations, the paddings before and after each axis, and whether the number of
    windows is rounded up (``ceil_mode``). Raises Refused unless there are 1 to 3 axes of space."""
    rank = x.dim() - 2
    if rank not in _MAX:
        raise Refused(f"has {rank} axes of space, of 1 to 3")
    kernel = _list(node, "kernel_shape", rank)
    strides, dilations = _list(node, "strides", rank), _list(node, "dilations", rank)
    pairs = _paddings(node, list(x.shape[2:]), kernel, strides, dilations)
    ceil = bool(node.get("ceil_mode", 0))
    return kernel, strides, dilations, pairs, ceil


def _fits(pairs: list[tuple[int, int]], kernel: list[int]) -> bool:
    """Return whether PyTorch's pooling takes the padding: the same on both sides, at most half of the kernel."""
    return all(before == after <= size // 2 for (before, after), size in zip(pairs, kernel, strict=True))


def _windows(
    x: Tensor, kernel: list[int], strides: list[int], dilations: list[int], pairs: list[tuple[int, int]], ceil: bool
) -> list[tuple[int, int]]:
    """Return the padding with which windows at the end are whole, for the rounding that the node asks for."""
    made = []
    for place, (before, after) in enumerate(pairs):
        size, stride = x.shape[2 + place], strides[place]
        span = (kernel[place] - 1) * dilations[place] + 1
        free = size + before + after - span
        count = (-(-free // stride) if ceil else free // stride) + 1
        if ceil and (count - 1) * stride >= size + before:
            count -= 1  # a window may not begin in the padding at the end
        made.append((before, max((count - 1) * stride + span - size - before, after if not ceil else 0)))
    return made


@converts("MaxPool")
def _max_pool(node: NodeView, x: Tensor) -> Values:
    kernel, strides, dilations, pairs, ceil = _pool(node, x)
    rank = len(kernel)
    if node.wants(1):
        return _max_pool_indices(node, x, kernel, strides, dilations, pairs, ceil)
    if _fits(pairs, kernel) and (not ceil or all(d == 1 for d in dilations)):
        return _MAX[rank](x, kernel, strides, [before for before, _ in pairs], dilations, ceil_mode=ceil)
    pairs = _windows(x, kernel, strides, dilations, pairs, ceil)
    padded = F.pad(x, [side for pair in reversed(pairs) for side in pair], value=-math.inf)
    return _MAX[rank](padded, kernel, strides, 0, dilations)


def _max_pool_indices(
    node: NodeView, x: Tensor, kernel: Any, strides: Any, dilations: Any, pairs: Any, ceil: bool
) -> Values:
    if not _fits(pairs, kernel) or node.get("storage_order", 0):
        raise Refused("has indices as an output, and padding that PyTorch's pooling lacks")
    y, at = _MAX[len(kernel)](
        x, kernel, strides, [before for before, _ in pairs], dilations, ceil_mode=ceil, return_indices=True
    )
    size = math.prod(x.shape[2:])
    first = torch.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * len(kernel)) * size
    return y, at + first


@converts("AveragePool")
def _average_pool(node: NodeView, x: Tensor) -> Values:
    kernel, strides, dilations, pairs, ceil = _pool(node, x)
    rank, counts_padding = len(kernel), bool(node.get("count_include_pad", 0))
    if all(d == 1 for d in dilations) and _fits(pairs, kernel):
        return _MEAN[rank](x, kernel, strides, [before for before, _ in pairs], ceil, counts_padding)
    ends = _windows(x, kernel, strides, dilations, pairs, ceil)
    total = _sums(node, x, kernel, strides, dilations, ends)
    counts = np.ones((), np.float32)
    for place, (before, _) in enumerate(pairs):
        size, after = x.shape[2 + place], pairs[place][1] if counts_padding else 0
        first = np.arange(total.shape[2 + place]) * strides[place] - before
        taps = first[:, None] + np.arange(kernel[place]) * dilations[place]
        inside = (taps >= (-before if counts_padding else 0)) & (taps < size + after)
        counts = counts[..., None] * inside.sum(axis=1).astype(np.float32)
    return total / node.constant("counts", counts)


def _sums(
    node: NodeView, x: Tensor, kernel: list[int], strides: list[int], dilations: list[int], pairs: list[tuple[int, int]]
) -> Tensor:
    """Return the sum of each window, as a convolution of each channel with ones."""
    channels, rank = x.shape[1], len(kernel)
    padded = F.pad(x, [side for pair in reversed(pairs) for side in pair])
    return _CONV[rank](
        padded,
        node.constant(f"ones_{channels}", np.ones((channels, 1, *kernel), np.float32)),
        None,
        strides,
        0,
        dilations,
        channels,
    )


@converts("LpPool")
def _lp_pool(node: NodeView, x: Tensor) -> Values:
    kernel, strides, dilations, pairs, ceil = _pool(node, x)
    p = node.get("p", 2)
    powers = torch.pow(torch.abs(x), p)
    pairs = _windows(x, kernel, strides, dilations, pairs, ceil)
    return torch.pow(_sums(node, powers, kernel, strides, dilations, pairs), 1 / p)


@converts("GlobalAveragePool")
def _global_average(node: NodeView, x: Tensor) -> Values:
    return F.adaptive_avg_pool2d(x, 1) if x.dim() == 4 else x.mean(list(range(2, x.dim())), keepdim=True)


@converts("GlobalMaxPool")
def _global_max(node: NodeView, x: Tensor) -> Values:
    return F.adaptive_max_pool2d(x, 1) if x.dim() == 4 else x.amax(list(range(2, x.dim())), keepdim=True)


@converts("GlobalLpPool")
def _global_lp(node: NodeView, x: Tensor) -> Values:
    p = node.get("p", 2)
    return torch.pow(torch.pow(torch.abs(x), p).sum(list(range(2, x.dim())), keepdim=True), 1 / p)
