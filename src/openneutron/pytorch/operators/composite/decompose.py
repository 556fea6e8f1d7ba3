# SPDX-License-Identifier: BSD-3-Clause
"""Operators whose decomposition in PyTorch leads to pieces that lose accuracy in int8 or that the NPU can't run."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from openneutron.pytorch.operators.rules.decomposition import KEPT, Keep, decomposes

_aten = torch.ops.aten

MOST_CLASSES = 4096
"""The limit on classes of a one-hot vector; the identity matrix has the square of the classes in bytes."""

MOST_FACTORS = 64
"""The limit on values along a dimension that is multiplied out, pair by pair."""


@decomposes("aten.rrelu.default")
def rrelu(self: Tensor, lower: float, upper: float, training: bool, generator: object) -> Tensor | Keep:
    """In eval mode RReLU is a leaky ReLU with the mean of the slopes."""
    del generator
    return KEPT if training else F.leaky_relu(self, (lower + upper) / 2)


@decomposes("aten.alpha_dropout.default", "aten.feature_alpha_dropout.default", "aten.feature_dropout.default")
def dropout(input: Tensor, p: float, train: bool) -> Tensor | Keep:
    del p
    return KEPT if train else input


@decomposes("aten.one_hot.default")
def one_hot(self: Tensor, num_classes: int) -> Tensor | Keep:
    """Return rows of an identity matrix: one GATHER, in float where the result is cast to float (``CastRows``)."""
    if not 0 < num_classes <= MOST_CLASSES:
        return KEPT
    return _aten.embedding.default(torch.eye(num_classes, dtype=torch.int64), self)


@decomposes("aten.bilinear.default")
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute a bilinear layer: input1 [..., i], input2 [..., j], weight [o, i, j].

    One linear layer on input1 has o * j outputs; for each output o, their products with input2 are summed.
    """
    outputs, _, extent = weight.shape
    rows = F.linear(input1, weight.transpose(1, 2).reshape(outputs * extent, -1))
    products = rows.reshape(*input1.shape[:-1], outputs, extent) * input2.unsqueeze(-2)
    sums = products.sum(-1)
    return sums if bias is None else sums + bias


@decomposes("aten.fmax.default")
def fmax(self: Tensor, other: Tensor) -> Tensor:
    """Return the plain maximum, since int8 holds no NaN."""
    return torch.maximum(self, other)


@decomposes("aten.fmin.default")
def fmin(self: Tensor, other: Tensor) -> Tensor:
    return torch.minimum(self, other)


@decomposes("aten.prod.dim_int")
def product_along(self: Tensor, dim: int, keepdim: bool, dtype: torch.dtype | None) -> Tensor | Keep:
    """Multiply the halves of the values with each other until one value is left."""
    if not self.is_floating_point() or dtype not in (None, self.dtype) or not self.dim():
        return KEPT
    if not 0 < self.shape[dim] <= MOST_FACTORS:
        return KEPT
    while (count := self.shape[dim]) > 1:
        half = count // 2
        parts = [self.narrow(dim, 0, half) * self.narrow(dim, half, half)]
        self = torch.cat(parts + ([self.narrow(dim, count - 1, 1)] if count % 2 else []), dim)
    return self if keepdim else self.squeeze(dim)


@decomposes("aten.any.default")
def any_of_all(self: Tensor) -> Tensor | Keep:
    return _any(self, list(range(self.dim())), False)


@decomposes("aten.any.dim")
def any_along(self: Tensor, dim: int, keepdim: bool) -> Tensor | Keep:
    return _any(self, [dim], keepdim)


@decomposes("aten.any.dims")
def any_along_several(self: Tensor, dim: Sequence[int] | None, keepdim: bool) -> Tensor | Keep:
    return _any(self, list(range(self.dim())) if dim is None else list(dim), keepdim)


def _any(self: Tensor, dims: list[int], keepdim: bool) -> Tensor | Keep:
    """Return the maximum of the booleans as numbers."""
    if self.dtype != torch.bool or not self.dim() or not self.numel():
        return KEPT
    return self.to(torch.float32).amax(dims, keepdim) > 0.5


@decomposes("aten.dist.default")
def distance(self: Tensor, other: Tensor, p: float) -> Tensor | Keep:
    return torch.linalg.vector_norm(self - other, p) if self.is_floating_point() else KEPT
