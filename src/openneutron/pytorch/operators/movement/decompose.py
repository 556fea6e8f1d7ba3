# SPDX-License-Identifier: BSD-3-Clause
"""Operators that move values, as slices, views, permutes, expansions and concatenations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from openneutron.pytorch.operators.rules.tables import KEPT, Keep, decomposes

_aten = torch.ops.aten


def _part(x: Tensor, dim: int, start: int, end: int) -> Tensor:
    """Return positions [start, end) of a dimension; the tensor itself where that is all of it."""
    return x if (start, end) == (0, x.shape[dim]) else _aten.slice.Tensor(x, dim, start, end)


def _parts(x: Tensor, dim: int, sizes: Sequence[int]) -> list[Tensor]:
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    return [_part(x, dim, end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _at(x: Tensor, dim: int, index: int) -> Tensor:
    dim, index = dim % x.dim(), index % x.shape[dim]
    return _aten.squeeze.dim(_part(x, dim, index, index + 1), dim)


# Apart


@decomposes("aten.select.int")
def select(self: Tensor, dim: int, index: int) -> Tensor:
    return _at(self, dim, index)


@decomposes("aten.narrow.default")
def narrow(self: Tensor, dim: int, start: int, length: int) -> Tensor:
    dim = dim % self.dim()
    start = start % self.shape[dim] if start < 0 else start
    return _part(self, dim, start, start + length)


@decomposes("aten.split.Tensor")
def split(self: Tensor, split_size: int, dim: int) -> list[Tensor] | Keep:
    extent = self.shape[dim]
    if not extent or not split_size:
        return KEPT
    return _parts(self, dim, [min(split_size, extent - start) for start in range(0, extent, split_size)])


@decomposes("aten.split_with_sizes.default")
def split_with_sizes(self: Tensor, split_sizes: Sequence[int], dim: int) -> list[Tensor]:
    return _parts(self, dim, split_sizes)


@decomposes("aten.unbind.int")
def unbind(self: Tensor, dim: int) -> list[Tensor]:
    return [_at(self, dim, index) for index in range(self.shape[dim])]


# Together


@decomposes("aten.stack.default")
def stack(tensors: Sequence[Tensor], dim: int) -> Tensor:
    dim = dim % (tensors[0].dim() + 1)
    return _aten.cat.default([_aten.unsqueeze.default(tensor, dim) for tensor in tensors], dim)


@decomposes("aten.roll.default")
def roll(self: Tensor, shifts: Sequence[int], dims: Sequence[int]) -> Tensor:
    if not dims:
        return _rolled(self.reshape(-1), shifts[0], 0).reshape(self.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        self = _rolled(self, shift, dim)
    return self


def _rolled(x: Tensor, shift: int, dim: int) -> Tensor:
    extent = x.shape[dim]
    shift = shift % extent if extent else 0
    if not shift:
        return x
    last = _aten.slice.Tensor(x, dim, extent - shift, extent)
    return _aten.cat.default([last, _aten.slice.Tensor(x, dim, 0, extent - shift)], dim)


# Turned


@decomposes("aten.rot90.default")
def rot90(self: Tensor, k: int, dims: Sequence[int]) -> Tensor:
    first, second = dims
    turns = k % 4
    if turns == 2:
        return _aten.flip.default(self, [first, second])
    if turns == 1:
        return _aten.flip.default(self, [second]).transpose(first, second)
    return _aten.flip.default(self.transpose(first, second), [second]) if turns else self


# Repeated


@decomposes("aten.repeat_interleave.self_int")
def repeat_interleave(self: Tensor, repeats: int, dim: int | None, **_: object) -> Tensor:
    if dim is None:
        self, dim = self.reshape(-1), 0
    dim = dim % self.dim()
    before, after = list(self.shape[:dim]), list(self.shape[dim + 1 :])
    each = _aten.expand.default(self.unsqueeze(dim + 1), [*before, self.shape[dim], repeats, *after])
    return each.reshape([*before, self.shape[dim] * repeats, *after])


@decomposes("aten.diff.default")
def diff(self: Tensor, n: int, dim: int, prepend: Tensor | None, append: Tensor | None) -> Tensor:
    if n == 0:
        return self.clone()  # PyTorch leaves out what stands around it then
    around = [tensor for tensor in (prepend, self, append) if tensor is not None]
    self = _aten.cat.default(around, dim) if len(around) > 1 else self
    for _ in range(n):
        extent = self.shape[dim]
        self = _aten.slice.Tensor(self, dim, 1, extent) - _aten.slice.Tensor(self, dim, 0, extent - 1)
    return self


@decomposes("aten.diagonal.default")
def diagonal(self: Tensor, offset: int, dim1: int, dim2: int) -> Tensor | Keep:
    """Return every (columns + 1)-th value of the matrices, with their rows concatenated."""
    first, second = dim1 % self.dim(), dim2 % self.dim()
    others = [dim for dim in range(self.dim()) if dim not in (first, second)]
    rows, columns = self.shape[first], self.shape[second]
    count = min(rows + min(offset, 0), columns - max(offset, 0))
    if count < 1:
        return KEPT
    start = offset if offset >= 0 else -offset * columns
    flat = self.permute(*others, first, second).reshape(*(self.shape[dim] for dim in others), rows * columns)
    return _aten.slice.Tensor(flat, -1, start, start + (count - 1) * (columns + 1) + 1, columns + 1)
