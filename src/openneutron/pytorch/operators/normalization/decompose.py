# SPDX-License-Identifier: BSD-3-Clause
"""Normalizations over more elements than one kernel call takes, for a converter without an operator for them, and by given statistics.

Such a normalization is x - mean, its square, the mean of that, the root's reciprocal, and one product; every intermediate result
gets a scale of its own, and only three of them have the input's size. The difference comes first: x * r - mean * r would
round numbers as large as the mean. Scale and shift per channel are a depthwise 1x1 convolution, one rounding to the right
scale for each channel instead of the two of a product and a sum (1 to 1.5 dB; docs/quantization-quality.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from openneutron.ops.normalization import MOST_NORMALIZED
from openneutron.pytorch.operators.rules.tables import KEPT, Keep, decomposes


def _fits_a_line(normalized_shape: Sequence[int], **_: object) -> bool:
    return math.prod(normalized_shape) <= MOST_NORMALIZED


def _fits_a_group(input: Tensor, num_groups: int, **_: object) -> bool:
    return math.prod(input.shape[1:]) // num_groups <= MOST_NORMALIZED


@decomposes("aten.layer_norm.default", own_operator=_fits_a_line)
def layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float, **_: object
) -> Tensor:
    dims = tuple(range(-len(normalized_shape), 0))
    return _scaled_and_shifted(_standardized(input, dims, eps), len(normalized_shape), weight, bias)


@decomposes("aten.rms_norm.default", own_operator=_fits_a_line)
def rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, eps: float | None) -> Tensor:
    dims = tuple(range(-len(normalized_shape), 0))
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    return _scaled_and_shifted(input * _over_root_mean_square(input, dims, eps), len(normalized_shape), weight, None)


@decomposes("aten.group_norm.default", own_operator=_fits_a_group)
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None, bias: Tensor | None, eps: float, **_: object
) -> Tensor:
    batch, channels, *extents = input.shape
    if num_groups == channels:
        return _per_channel(_standardized(input, tuple(range(2, input.dim())), eps), weight, bias)
    groups = input.reshape(batch, num_groups, channels // num_groups, *extents)
    normal = _standardized(groups, tuple(range(2, groups.dim())), eps)
    return _per_channel(normal.reshape(input.shape), weight, bias)


@decomposes("aten.instance_norm.default")
def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    eps: float,
    **_: object,
) -> Tensor | Keep:
    if not use_input_stats:
        assert running_mean is not None and running_var is not None
        factor = torch.rsqrt(running_var + eps)
        factor = factor if weight is None else factor * weight
        offset = -running_mean * factor
        return _per_channel(input, factor, offset if bias is None else offset + bias)
    if running_mean is not None:
        return KEPT  # it changes its running statistics
    if math.prod(input.shape[2:]) <= MOST_NORMALIZED:
        normal: Tensor = torch.ops.aten.group_norm.default(input, input.shape[1], weight, bias, eps)
        return normal
    return _per_channel(_standardized(input, tuple(range(2, input.dim())), eps), weight, bias)


def _standardized(x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    """Return (x - mean) / sqrt(variance + eps), both over ``dims``."""
    centred = x - x.mean(dims, keepdim=True)
    return centred * _over_root_mean_square(centred, dims, eps)


def _over_root_mean_square(x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    return torch.rsqrt((x * x).mean(dims, keepdim=True) + eps)


def _scaled_and_shifted(x: Tensor, rank: int, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return weight * x + bias, both of the shape of x's last ``rank`` dimensions."""
    if weight is None and bias is None:
        return x
    if rank > 1:
        # One factor for each element of a sample: an image of per-element channels would be as large as the weights.
        x = x if weight is None else x * weight
        return x if bias is None else x + bias
    rows = x.reshape(1, -1, x.shape[-1], 1).transpose(1, 2)
    return _per_channel(rows, weight, bias).transpose(1, 2).reshape(x.shape)


def _per_channel(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return weight * x + bias for each index of x's second dimension."""
    if weight is None and bias is None:
        return x
    channels = x.shape[1]
    weight = torch.ones(channels) if weight is None else weight
    weight = weight.reshape(channels, 1, 1, 1)
    if x.dim() == 4:
        return F.conv2d(x, weight, bias, groups=channels)
    image = x.reshape(x.shape[0], channels, -1, 1)
    return F.conv2d(image, weight, bias, groups=channels).reshape(x.shape)
