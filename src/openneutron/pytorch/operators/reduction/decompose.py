# SPDX-License-Identifier: BSD-3-Clause
"""Logarithms of sums of exponentials, variances, norms, and normalizations by statistics of the input itself.

The largest exponential is factored out: the remaining sum is between 0 and the number of terms, so int8 resolves it at any
magnitude of the terms.

A normalization is x - mean, its square, the mean of that, the root's reciprocal, and one product; every intermediate result
gets a scale of its own, and only three of them have the input's size. The difference comes first: x * r - mean * r would
round numbers as large as the mean. Scale and shift per channel are a depthwise 1x1 convolution, one rounding to the right
scale for each channel instead of the two of a product and a sum (1 to 1.5 dB; docs/quantization-quality.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from openneutron.pytorch.operators.elementwise.decompose import times
from openneutron.pytorch.operators.rules.tables import KEPT, Keep, decomposes


@decomposes("aten.logsumexp.default")
def logsumexp(self: Tensor, dim: Sequence[int], keepdim: bool) -> Tensor | Keep:
    if not self.is_floating_point():
        return KEPT
    if not self.dim():  # ExecuTorch's kernels of reductions end the process for a scalar
        return self.clone()
    dims = sorted(axis % self.dim() for axis in dim) or list(range(self.dim()))
    largest = self.amax(dims, keepdim=True)
    result = largest + torch.log(torch.exp(self - largest).sum(dims, keepdim=True))
    return result if keepdim else result.reshape([n for axis, n in enumerate(self.shape) if axis not in dims])


def _log_of_sum(power: Callable[[Tensor], Tensor], base: float) -> Callable[[Tensor, Tensor], Tensor | Keep]:
    def rule(self: Tensor, other: Tensor) -> Tensor | Keep:
        if not (self.is_floating_point() and other.is_floating_point()):
            return KEPT
        return torch.maximum(self, other) + times(torch.log1p(power(-torch.abs(self - other))), 1 / math.log(base))

    return rule


decomposes("aten.logaddexp.default")(_log_of_sum(torch.exp, math.e))
decomposes("aten.logaddexp2.default")(_log_of_sum(torch.exp2, 2))


@decomposes("aten.hypot.default")
def hypot(self: Tensor, other: Tensor) -> Tensor | Keep:
    if not (self.is_floating_point() and other.is_floating_point()):
        return KEPT
    return torch.sqrt(self * self + other * other)


def _variance(x: Tensor, dims: list[int], correction: float, keepdim: bool) -> Tensor | Keep:
    """Of a whole dimension the squares' mean is taken, and their number corrected by a factor: sums would be large."""
    count = math.prod(x.shape[dim] for dim in dims)
    if count <= correction:
        return KEPT  # It is NaN or infinite.
    apart = x - x.mean(dims, keepdim=True)
    squares = (apart * apart).mean(dims, keepdim=keepdim)
    return squares if correction == 0 else squares * (count / (count - correction))


def _rule(root: bool, with_mean: bool) -> Callable[..., Any]:
    def rule(**given: Any) -> Any:
        x = given["self"]
        dims = [dim % x.dim() for dim in (given.get("dim") or range(x.dim()))]
        correction = float(given["unbiased"]) if "unbiased" in given else given["correction"]
        keepdim = given.get("keepdim", False)
        spread = _variance(x, dims, 1.0 if correction is None else float(correction), keepdim)
        if isinstance(spread, Keep):
            return spread
        spread = torch.sqrt(spread) if root else spread
        return (spread, x.mean(dims, keepdim=keepdim)) if with_mean else spread

    return rule


for _root, _name in ((False, "var"), (True, "std")):
    for _form in ("default", "dim", "correction"):
        decomposes(f"aten.{_name}.{_form}")(_rule(_root, False))
        decomposes(f"aten.{_name}_mean.{_form}")(_rule(_root, True))


@decomposes("aten.layer_norm.default")
def layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float, **_: object
) -> Tensor:
    dims = tuple(range(-len(normalized_shape), 0))
    return _scaled_and_shifted(_standardized(input, dims, eps), len(normalized_shape), weight, bias)


@decomposes("aten.rms_norm.default")
def rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, eps: float | None) -> Tensor:
    dims = tuple(range(-len(normalized_shape), 0))
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    return _scaled_and_shifted(input * _over_root_mean_square(input, dims, eps), len(normalized_shape), weight, None)


@decomposes("aten.group_norm.default")
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
    return _per_channel(_standardized(input, tuple(range(2, input.dim())), eps), weight, bias)


@decomposes("aten.linalg_vector_norm.default")
def vector_norm(
    self: Tensor, ord: float, dim: Sequence[int] | None, keepdim: bool, dtype: torch.dtype | None
) -> Tensor | Keep:
    """The sum is a mean times a number: means rescale, and the number goes into the table of the root."""
    dims = tuple(range(self.dim())) if dim is None else tuple(dim)
    if not self.dim() and ord != 0:
        return self.abs()
    if not dims or not self.numel() or (dtype is not None and dtype != self.dtype):
        return KEPT
    if abs(ord) == math.inf:
        return self.abs().amax(dims, keepdim) if ord > 0 else self.abs().amin(dims, keepdim)
    if ord <= 0:
        return KEPT
    terms = math.prod(self.shape[axis] for axis in dims)
    if ord == 1:
        return self.abs().mean(dims, keepdim) * terms
    if ord == 2:
        return torch.sqrt((self * self).mean(dims, keepdim) * terms)
    return ((self.abs() ** ord).mean(dims, keepdim) * terms) ** (1 / ord)


MOST_DIFFERENCES = 1 << 18
"""The limit on differences that the distances between two sets of points take: 256 KiB in int8."""


@decomposes("aten.cdist.default")
def distances(x1: Tensor, x2: Tensor, p: float, **_: object) -> Tensor | Keep:
    """Return the norm of the difference of each point of one set from each point of the other."""
    differences = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    if p <= 0 or not 0 < differences.numel() <= MOST_DIFFERENCES:
        return KEPT
    norms: Tensor = torch.ops.aten.linalg_vector_norm.default(differences, p, [-1])
    return norms


def _standardized(x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    """Return (x - mean) / sqrt(variance + eps), both over ``dims``."""
    centred = x - x.mean(dims, keepdim=True)
    return centred * _over_root_mean_square(centred, dims, eps)


def _over_root_mean_square(x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    return torch.rsqrt((x * x).mean(dims, keepdim=True) + eps)


def _scaled_and_shifted(x: Tensor, rank: int, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """weight * x + bias, both of the shape of x's last ``rank`` dimensions."""
    if weight is None and bias is None:
        return x
    if rank > 1:
        # One factor for each element of a sample: an image of per-element channels would be as large as the weights.
        x = x if weight is None else x * weight
        return x if bias is None else x + bias
    rows = x.reshape(1, -1, x.shape[-1], 1).transpose(1, 2)
    return _per_channel(rows, weight, bias).transpose(1, 2).reshape(x.shape)


def _per_channel(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """weight * x + bias for each index of x's second dimension."""
    if weight is None and bias is None:
        return x
    channels = x.shape[1]
    weight = torch.ones(channels) if weight is None else weight
    weight = weight.reshape(channels, 1, 1, 1)
    if x.dim() == 4:
        return F.conv2d(x, weight, bias, groups=channels)
    image = x.reshape(x.shape[0], channels, -1, 1)
    return F.conv2d(image, weight, bias, groups=channels).reshape(x.shape)
