# SPDX-License-Identifier: BSD-3-Clause
"""Choices by booleans, extrema with their positions, and running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from openneutron.pytorch.operators.annotations import LARGEST_VALUE
from openneutron.pytorch.operators.rules.tables import KEPT, Keep, decomposes

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


@decomposes("aten.eq.Scalar")
def equal_to_number(self: Tensor, other: float) -> Tensor | Keep:
    return _of_boolean(self, other, bool(other))


@decomposes("aten.ne.Scalar")
def unequal_to_number(self: Tensor, other: float) -> Tensor | Keep:
    return _of_boolean(self, other, not other)


def _of_boolean(self: Tensor, other: float, stays: bool) -> Tensor | Keep:
    """Return a boolean, or its negation."""
    if self.dtype != torch.bool or other not in (0, 1):
        return KEPT
    negated = _aten.logical_not.default(self)
    return _aten.logical_not.default(negated) if stays else negated


@decomposes("aten.where.ScalarOther")
def where_or_number(condition: Tensor, self: Tensor, other: float) -> Tensor | Keep:
    return _chosen(_aten.logical_not.default(condition), other, self)


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


def _extreme(value_of: Any, position_of: Any) -> Callable[..., Any]:
    """Return the decomposition of max or min, of all values or along a dimension with their positions."""

    def rule(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | tuple[Tensor, Tensor] | Keep:
        if not self.is_floating_point() or (dim is not None and not self.dim()):
            return KEPT
        if dim is None:
            return value_of(self, list(range(self.dim())))
        return value_of(self, [dim], keepdim), position_of(self, dim, keepdim)

    return rule


decomposes("aten.max.default", "aten.max.dim")(_extreme(_aten.amax.default, _aten.argmax.default))
decomposes("aten.min.default", "aten.min.dim")(_extreme(_aten.amin.default, _aten.argmin.default))


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
