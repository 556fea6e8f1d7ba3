# SPDX-License-Identifier: BSD-3-Clause
"""Arithmetic of several operands, and other names of it."""

from __future__ import annotations

import torch
from torch import Tensor

from openneutron.pytorch.operators.rules.decomposition import KEPT, Keep, decomposes

_aten = torch.ops.aten


def _times(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1 else x * factor


@decomposes("aten.addcmul.default")
def addcmul(self: Tensor, tensor1: Tensor, tensor2: Tensor, value: float) -> Tensor:
    return self + _times(tensor1 * tensor2, value)


@decomposes("aten.addcdiv.default")
def addcdiv(self: Tensor, tensor1: Tensor, tensor2: Tensor, value: float) -> Tensor:
    return self + _times(tensor1 / tensor2, value)


@decomposes("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(self: Tensor, end: Tensor, weight: Tensor | float) -> Tensor:
    return self + (end - self) * weight


@decomposes("aten.multiply.Tensor")
def multiply(self: Tensor, other: Tensor) -> Tensor:
    return self * other


@decomposes("aten.true_divide.Tensor", "aten.divide.Tensor")
def divide(self: Tensor, other: Tensor) -> Tensor:
    return self / other


@decomposes("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(self: Tensor, other: Tensor | float) -> Tensor | Keep:
    if not self.is_floating_point():
        return KEPT
    if isinstance(other, Tensor):
        return _aten.div.Tensor_mode(self, other, rounding_mode="floor")
    return _aten.div.Scalar_mode(self, other, rounding_mode="floor")


@decomposes("aten.div.Tensor_mode", "aten.divide.Tensor_mode")
def divide_and_round(self: Tensor, other: Tensor, rounding_mode: str | None) -> Tensor | Keep:
    """Return the rounded quotient of two tensors. A division by a number is one pointwise function, which becomes a
    table."""
    if not (self.is_floating_point() and other.is_floating_point()) or (other.numel() == 1 and rounding_mode):
        return KEPT
    quotient = self / other
    if rounding_mode is None:
        return quotient
    return _aten.floor.default(quotient) if rounding_mode == "floor" else _aten.trunc.default(quotient)


@decomposes("aten.subtract.Tensor")
def subtract(self: Tensor, other: Tensor, alpha: float) -> Tensor:
    return _aten.sub.Tensor(self, other, alpha=alpha) if alpha != 1 else self - other


@decomposes("aten.negative.default")
def negative(self: Tensor) -> Tensor:
    return _aten.neg.default(self)


@decomposes("aten.clip.default")
def clip(self: Tensor, min: float | None, max: float | None) -> Tensor:
    return _aten.clamp.default(self, min, max)


@decomposes("aten.clamp_max.default")
def clamp_max(self: Tensor, max: float) -> Tensor:
    return _aten.clamp.default(self, None, max)


@decomposes("aten.clamp.Tensor", "aten.clip.Tensor")
def clamp_between(self: Tensor, min: Tensor | None, max: Tensor | None) -> Tensor:
    if min is not None:
        self = _aten.maximum.default(self, min)
    return self if max is None else _aten.minimum.default(self, max)


@decomposes("aten.clamp_min.Tensor")
def clamp_min_tensor(self: Tensor, min: Tensor) -> Tensor:
    return _aten.maximum.default(self, min)


@decomposes("aten.clamp_max.Tensor")
def clamp_max_tensor(self: Tensor, max: Tensor) -> Tensor:
    return _aten.minimum.default(self, max)


@decomposes("aten.max.other")
def max_of_two(self: Tensor, other: Tensor) -> Tensor:
    return _aten.maximum.default(self, other)


@decomposes("aten.min.other")
def min_of_two(self: Tensor, other: Tensor) -> Tensor:
    return _aten.minimum.default(self, other)


@decomposes("aten.max.default")
def max_of_all(self: Tensor) -> Tensor | Keep:
    return _aten.amax.default(self, list(range(self.dim()))) if self.is_floating_point() else KEPT


@decomposes("aten.min.default")
def min_of_all(self: Tensor) -> Tensor | Keep:
    return _aten.amin.default(self, list(range(self.dim()))) if self.is_floating_point() else KEPT


@decomposes("aten.aminmax.default")
def aminmax(self: Tensor, dim: int | None, keepdim: bool) -> list[Tensor] | Keep:
    if not self.is_floating_point():
        return KEPT
    dims = list(range(self.dim())) if dim is None else [dim]
    return [_aten.amin.default(self, dims, keepdim), _aten.amax.default(self, dims, keepdim)]


@decomposes("aten.mean.dim", "aten.mean.default")
def mean_of_another_type(
    self: Tensor, dtype: torch.dtype | None, dim: list[int] | None = None, keepdim: bool = False
) -> Tensor | Keep:
    """Compute a mean in double precision in float32 and cast the result; int8 sums are exact either way."""
    if self.dtype != torch.float32 or dtype != torch.float64:
        return KEPT
    return self.mean(dim or list(range(self.dim())), keepdim=keepdim).to(dtype)
