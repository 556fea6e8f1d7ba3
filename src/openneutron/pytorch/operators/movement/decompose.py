# SPDX-License-Identifier: BSD-3-Clause
"""Operators that move values, as slices, views, permutes, expansions and concatenations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from openneutron.pytorch.operators.rules.decomposition import KEPT, Keep, decomposes

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


def _moved(x: Tensor, source: Sequence[int], destination: Sequence[int]) -> Tensor:
    source, destination = [dim % x.dim() for dim in source], [dim % x.dim() for dim in destination]
    rest = iter(dim for dim in range(x.dim()) if dim not in source)
    came_from = dict(zip(destination, source, strict=True))
    return _aten.permute.default(x, [came_from[dim] if dim in came_from else next(rest) for dim in range(x.dim())])


def _swapped(x: Tensor, dim0: int, dim1: int) -> Tensor:
    dims = list(range(x.dim()))
    dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return _aten.permute.default(x, dims) if dims else x


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


@decomposes("aten.split_with_sizes.default", "aten.split.sizes")
def split_with_sizes(
    self: Tensor, dim: int, split_sizes: Sequence[int] = (), split_size: Sequence[int] = ()
) -> list[Tensor]:
    return _parts(self, dim, split_sizes or split_size)


@decomposes("aten.chunk.default", "aten.unsafe_chunk.default")
def chunk(self: Tensor, chunks: int, dim: int) -> list[Tensor] | Keep:
    return split(self, -(-self.shape[dim] // chunks), dim)


@decomposes("aten.hsplit.int")
def hsplit(self: Tensor, sections: int) -> list[Tensor]:
    return tensor_split(self, sections, 1 if self.dim() > 1 else 0)


@decomposes("aten.vsplit.int")
def vsplit(self: Tensor, sections: int) -> list[Tensor]:
    return tensor_split(self, sections, 0)


@decomposes("aten.dsplit.int")
def dsplit(self: Tensor, sections: int) -> list[Tensor]:
    return tensor_split(self, sections, 2)


@decomposes("aten.tensor_split.sections")
def tensor_split(self: Tensor, sections: int, dim: int) -> list[Tensor]:
    size, longer = divmod(self.shape[dim], sections)
    return _parts(self, dim, [size + 1] * longer + [size] * (sections - longer))


@decomposes("aten.tensor_split.indices")
def tensor_split_at(self: Tensor, indices: Sequence[int], dim: int) -> list[Tensor]:
    ends = [*indices, self.shape[dim]]
    return [_aten.slice.Tensor(self, dim, start, end) for start, end in zip([0, *indices], ends, strict=True)]


@decomposes("aten.unbind.int")
def unbind(self: Tensor, dim: int) -> list[Tensor]:
    return [_at(self, dim, index) for index in range(self.shape[dim])]


# Together


@decomposes("aten.stack.default")
def stack(tensors: Sequence[Tensor], dim: int) -> Tensor:
    dim = dim % (tensors[0].dim() + 1)
    return _aten.cat.default([_aten.unsqueeze.default(tensor, dim) for tensor in tensors], dim)


@decomposes("aten.concat.default", "aten.concatenate.default")
def concat(tensors: Sequence[Tensor], dim: int) -> Tensor:
    return _aten.cat.default(list(tensors), dim)


@decomposes("aten.hstack.default")
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    tensors = [_of_rank(tensor, 1) for tensor in tensors]
    return _aten.cat.default(tensors, 0 if tensors[0].dim() == 1 else 1)


@decomposes("aten.vstack.default", "aten.row_stack.default")
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    return _aten.cat.default([_of_rank(tensor, 2) for tensor in tensors], 0)


@decomposes("aten.dstack.default")
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    return _aten.cat.default([_aten.unsqueeze.default(x, 2) if x.dim() == 2 else _of_rank(x, 3) for x in tensors], 2)


@decomposes("aten.column_stack.default")
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    return _aten.cat.default([x.reshape(x.numel(), 1) if x.dim() < 2 else x for x in tensors], 1)


def _of_rank(x: Tensor, rank: int) -> Tensor:
    """Return the tensor with at least this rank, as atleast_2d and atleast_3d do."""
    if x.dim() >= rank:
        return x
    shape = {0: (1,) * rank, 1: (1, x.numel(), 1)[: rank if rank > 1 else 2], 2: (*x.shape, 1)}[x.dim()]
    return x.reshape(shape)


@decomposes("aten.atleast_1d.default")
def atleast_1d(self: Tensor) -> Tensor:
    return _of_rank(self, 1)


@decomposes("aten.atleast_2d.default")
def atleast_2d(self: Tensor) -> Tensor:
    return _of_rank(self, 2)


@decomposes("aten.atleast_3d.default")
def atleast_3d(self: Tensor) -> Tensor:
    return _of_rank(self, 3)


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


@decomposes("aten.movedim.int", "aten.moveaxis.int")
def movedim(self: Tensor, source: int, destination: int) -> Tensor:
    return _moved(self, [source], [destination])


@decomposes("aten.movedim.intlist", "aten.moveaxis.intlist")
def movedims(self: Tensor, source: Sequence[int], destination: Sequence[int]) -> Tensor:
    return _moved(self, source, destination)


@decomposes("aten.swapaxes.default")
def swapaxes(self: Tensor, axis0: int, axis1: int) -> Tensor:
    return _swapped(self, axis0, axis1)


@decomposes("aten.swapdims.default")
def swapdims(self: Tensor, dim0: int, dim1: int) -> Tensor:
    return _swapped(self, dim0, dim1)


@decomposes("aten.numpy_T.default")
def turned(self: Tensor) -> Tensor:
    return _aten.permute.default(self, list(range(self.dim()))[::-1])


@decomposes("aten.mT.default", "aten.mH.default", "aten.matrix_H.default", "aten.adjoint.default")
def matrices_turned(self: Tensor) -> Tensor | Keep:
    return _swapped(self, -1, -2) if self.dim() > 1 and not self.is_complex() else KEPT


@decomposes("aten.fliplr.default")
def fliplr(self: Tensor) -> Tensor:
    return _aten.flip.default(self, [1])


@decomposes("aten.flipud.default")
def flipud(self: Tensor) -> Tensor:
    return _aten.flip.default(self, [0])


@decomposes("aten.rot90.default")
def rot90(self: Tensor, k: int, dims: Sequence[int]) -> Tensor:
    first, second = dims
    turns = k % 4
    if turns == 2:
        return _aten.flip.default(self, [first, second])
    if turns == 1:
        return _swapped(_aten.flip.default(self, [second]), first, second)
    return _aten.flip.default(_swapped(self, first, second), [second]) if turns else self


# Other shapes


@decomposes("aten.ravel.default")
def ravel(self: Tensor) -> Tensor:
    return self.reshape(-1)


@decomposes("aten.unflatten.int")
def unflatten(self: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    dim = dim % self.dim()
    return self.reshape([*self.shape[:dim], *_filled(sizes, self.shape[dim]), *self.shape[dim + 1 :]])


def _filled(sizes: Sequence[int], elements: int) -> list[int]:
    """Return the sizes with -1 replaced by what is left."""
    known = math.prod(size for size in sizes if size != -1)
    return [elements // known if size == -1 else size for size in sizes]


@decomposes("aten.view_as.default", "aten.reshape_as.default")
def view_as(self: Tensor, other: Tensor) -> Tensor:
    return self.reshape(other.shape)


# Repeated


@decomposes("aten.expand_as.default")
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    return _aten.expand.default(self, list(other.shape))


@decomposes("aten.broadcast_to.default")
def broadcast_to(self: Tensor, size: Sequence[int]) -> Tensor:
    return _aten.expand.default(self, list(size))


@decomposes("aten.broadcast_tensors.default")
def broadcast_tensors(tensors: Sequence[Tensor]) -> list[Tensor]:
    shape = list(torch.broadcast_shapes(*(tensor.shape for tensor in tensors)))
    return [_aten.expand.default(tensor, shape) for tensor in tensors]


@decomposes("aten.tile.default")
def tile(self: Tensor, dims: Sequence[int]) -> Tensor:
    return _aten.repeat.default(self, [1] * (self.dim() - len(dims)) + list(dims))


@decomposes("aten.repeat_interleave.self_int")
def repeat_interleave(self: Tensor, repeats: int, dim: int | None, output_size: int | None) -> Tensor:
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
