# SPDX-License-Identifier: BSD-3-Clause
"""Choices by booleans, extrema with their positions, and running sums."""

from __future__ import annotations

import torch
from torch import Tensor

from openneutron.pytorch.operators.comparison.quantize import LARGEST_VALUE
from openneutron.pytorch.operators.rules.decomposition import KEPT, Keep, decomposes

_aten = torch.ops.aten

MOST_ADDED = 512
"""Positions of a running sum, whose matrix of ones has their square in bytes."""


def out_of_reach(number: float) -> bool:
    return not abs(number) <= LARGEST_VALUE


def _number(like: Tensor, number: float) -> Tensor:
    return torch.full((), number, dtype=like.dtype)


@decomposes("aten.masked_fill.Scalar")
def masked_fill(self: Tensor, mask: Tensor, value: float) -> Tensor | Keep:
    if not self.is_floating_point() or out_of_reach(value):
        return KEPT
    return _aten.where.self(mask, _number(self, value), self)


@decomposes("aten.masked_fill.Tensor")
def masked_fill_with_tensor(self: Tensor, mask: Tensor, value: Tensor) -> Tensor | Keep:
    return _aten.where.self(mask, value, self) if self.is_floating_point() and self.dtype == value.dtype else KEPT


@decomposes("aten.where.ScalarOther")
def where_or_number(condition: Tensor, self: Tensor, other: float) -> Tensor | Keep:
    return _chosen(_aten.logical_not.default(condition), other, self)


@decomposes("aten.where.ScalarSelf")
def where_number(condition: Tensor, self: float, other: Tensor) -> Tensor | Keep:
    return _chosen(condition, self, other)


def _chosen(condition: Tensor, number: float, otherwise: Tensor) -> Tensor | Keep:
    if not otherwise.is_floating_point():
        return KEPT
    if out_of_reach(number) and torch.broadcast_shapes(condition.shape, otherwise.shape) == otherwise.shape:
        return _aten.masked_fill.Scalar(otherwise, condition, number)
    return _aten.where.self(condition, _number(otherwise, number), otherwise)


@decomposes("aten.where.Scalar")
def where_numbers(condition: Tensor, self: float, other: float) -> Tensor | Keep:
    if not (isinstance(self, float) and isinstance(other, float)):
        return KEPT
    return _aten.where.self(condition, torch.full((), self), torch.full((), other))


@decomposes("aten.max.dim")
def max_along(self: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor] | Keep:
    if not self.is_floating_point() or not self.dim():
        return KEPT
    return _aten.amax.default(self, [dim], keepdim), _aten.argmax.default(self, dim, keepdim)


@decomposes("aten.min.dim")
def min_along(self: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor] | Keep:
    if not self.is_floating_point() or not self.dim():
        return KEPT
    return _aten.amin.default(self, [dim], keepdim), _aten.argmin.default(self, dim, keepdim)


@decomposes("aten.cumsum.default")
def running_sum(self: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor | Keep:
    """Return a product with a triangle of ones, which int8 holds exactly."""
    if not self.is_floating_point() or dtype not in (None, self.dtype) or not self.numel():
        return KEPT
    if self.numel() == 1:
        return self.clone()
    count = self.shape[dim]
    if count > MOST_ADDED:
        return KEPT
    rows = self.transpose(dim, -1) if self.dim() > 1 else self.reshape(1, count)
    sums = _aten.linear.default(rows, torch.ones(count, count, dtype=self.dtype).tril())
    return sums.transpose(dim, -1) if self.dim() > 1 else sums.reshape(count)
