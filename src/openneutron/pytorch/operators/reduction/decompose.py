# SPDX-License-Identifier: BSD-3-Clause
"""Logarithms of sums of exponentials, variances, and norms.

The largest exponential is factored out: the remaining sum is between 0 and the number of terms, so int8 resolves it at any
magnitude of the terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
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
