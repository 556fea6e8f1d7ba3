# SPDX-License-Identifier: BSD-3-Clause
"""Choices by booleans, extrema with their positions, running sums, and values in order."""

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


# -- the order of values, which ExecuTorch's runtime has as topk alone


@decomposes("aten.sort.default")
def sort(self: Tensor, dim: int, descending: bool) -> tuple[Tensor, Tensor] | Keep:
    return _sorted(self, dim, descending)


@decomposes("aten.sort.stable")
def stable_sort(self: Tensor, stable: bool | None, dim: int, descending: bool) -> tuple[Tensor, Tensor] | Keep:
    """topk does not keep the order of equal values, so that a sort that has to keep it stays whole."""
    return KEPT if stable else _sorted(self, dim, descending)


def _sorted(self: Tensor, dim: int, descending: bool) -> tuple[Tensor, Tensor] | Keep:
    if not self.dim() or self.dtype == torch.bool:
        return KEPT
    values, indices = torch.topk(self, self.shape[dim], dim, largest=descending, sorted=True)
    return values, indices


@decomposes("aten.kthvalue.default")
def kth_value(self: Tensor, k: int, dim: int, keepdim: bool) -> tuple[Tensor, Tensor] | Keep:
    return _kth(self, k, dim, keepdim)


@decomposes("aten.median.dim")
def median_of_axis(self: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor] | Keep:
    """Of an even number of values, the median is the smaller one of the two in the middle."""
    return _kth(self, (self.shape[dim] + 1) // 2, dim, keepdim) if self.dim() else KEPT


@decomposes("aten.median.default")
def median(self: Tensor) -> Tensor | Keep:
    if not self.dim() or not self.numel():
        return KEPT
    found = _kth(self.reshape(-1), (self.numel() + 1) // 2, 0, False)
    return found if isinstance(found, Keep) else found[0]


def _kth(self: Tensor, k: int, dim: int, keepdim: bool) -> tuple[Tensor, Tensor] | Keep:
    """Return the k-th smallest values, counted from 1, and their indices."""
    if not self.dim() or not self.numel():
        return KEPT
    found = (item.narrow(dim, k - 1, 1) for item in torch.topk(self, k, dim, largest=False, sorted=True))
    values, indices = (item if keepdim else item.squeeze(dim) for item in found)
    return values, indices


@decomposes("aten.bucketize.Tensor")
def bucketize(self: Tensor, boundaries: Tensor, out_int32: bool, right: bool) -> Tensor | Keep:
    return _places(boundaries, self, out_int32, right)


@decomposes("aten.searchsorted.Tensor")
def search_sorted(
    sorted_sequence: Tensor, self: Tensor, out_int32: bool, right: bool, side: str | None, sorter: Tensor | None
) -> Tensor | Keep:
    if sorter is not None:
        return KEPT
    return _places(sorted_sequence, self, out_int32, right or side == "right")


def _places(boundaries: Tensor, values: Tensor, out_int32: bool, right: bool) -> Tensor | Keep:
    """Return for each value the number of boundaries below it, or with ``right`` of those that it reaches."""
    if not values.dim() or not boundaries.numel() or values.numel() * boundaries.shape[-1] > MOST_COMPARED:
        return KEPT
    limits = boundaries if boundaries.dim() == 1 else boundaries.unsqueeze(-2)
    passed = values.unsqueeze(-1) >= limits if right else values.unsqueeze(-1) > limits
    return passed.to(torch.int32 if out_int32 else torch.int64).sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


@decomposes("aten.isin.Tensor_Tensor")
def is_in(elements: Tensor, test_elements: Tensor, assume_unique: bool, invert: bool) -> Tensor | Keep:
    del assume_unique
    if not elements.dim() or not test_elements.numel() or elements.numel() * test_elements.numel() > MOST_COMPARED:
        return KEPT
    found = (elements.unsqueeze(-1) == test_elements.reshape(-1)).any(-1)
    return ~found if invert else found


MOST_COMPARED = 1 << 18
"""The limit on comparisons in the place of one search, each a byte of memory; a number of our own choice."""
