# SPDX-License-Identifier: BSD-3-Clause
"""Logarithms of sums of exponentials, and roots of sums of squares, each with its largest term factored out.

The remaining sum is between 0 and the number of terms, so int8 resolves it at any magnitude of the terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from openneutron.pytorch.operators.rules.decomposition import KEPT, Keep, decomposes


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


@decomposes("aten.logaddexp.default")
def logaddexp(self: Tensor, other: Tensor) -> Tensor | Keep:
    if not (self.is_floating_point() and other.is_floating_point()):
        return KEPT
    return torch.maximum(self, other) + torch.log1p(torch.exp(-torch.abs(self - other)))


@decomposes("aten.logaddexp2.default")
def logaddexp2(self: Tensor, other: Tensor) -> Tensor | Keep:
    if not (self.is_floating_point() and other.is_floating_point()):
        return KEPT
    return torch.maximum(self, other) + torch.log1p(torch.exp2(-torch.abs(self - other))) * (1 / LOG_2)


LOG_2 = 0.6931471805599453
"""The natural logarithm of 2."""


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
