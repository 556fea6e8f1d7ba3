# SPDX-License-Identifier: BSD-3-Clause
"""Embedding bags as products with a matrix that assigns embeddings to bags."""

from __future__ import annotations

import torch
from torch import Tensor

from openneutron.pytorch.operators.rules.decomposition import KEPT, Keep, decomposes

_aten = torch.ops.aten

SUM, MEAN, MAX = 0, 1, 2
"""The modes of ``aten.embedding_bag``."""

MOST_TAKEN = 512
"""The limit on the embeddings of all bags of a call: a table of this many rows and columns marks the embeddings behind
each offset."""


@decomposes("aten.embedding_bag.padding_idx", "aten.embedding_bag.default")
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int | None = None,
) -> tuple[Tensor, None, None, None] | Keep:
    """Return the bags only; the operator's other results serve its gradient. An empty bag is zeros."""
    del scale_grad_by_freq, sparse
    taken = indices.numel()
    bags = offsets.numel() - include_last_offset
    if padding_idx is not None or not 0 < taken <= MOST_TAKEN or bags < 1 or indices.dim() != 1:
        return KEPT
    rows = _aten.embedding.default(weight, indices)
    # Row o of the table marks the embeddings at offset o or behind it.
    table = torch.ones(taken, taken + 1, dtype=weight.dtype).tril().t()
    behind = _aten.index.Tensor(table, [offsets])
    inside = _aten.slice.Tensor(behind, 0, 0, bags)
    if offsets.numel() > 1:
        following = _aten.slice.Tensor(behind, 0, 1, offsets.numel())
        if not include_last_offset:
            following = _aten.constant_pad_nd.default(following, [0, 0, 0, 1], 0.0)
        inside = inside - following
    if mode == MAX:
        return _largest(rows, inside), None, None, None
    if per_sample_weights is not None:
        inside = inside * per_sample_weights
    elif mode == MEAN:
        inside = inside / _aten.clamp.default(inside.sum(1, keepdim=True), 1.0)
    return _aten.matmul.default(inside, rows), None, None, None


def _largest(rows: Tensor, inside: Tensor) -> Tensor:
    """Return the maximum over each bag's rows; rows of other bags are replaced by the smallest value."""
    belongs = _aten.gt.Scalar(inside, 0.5)
    candidates = _aten.where.self(belongs.unsqueeze(2), rows.unsqueeze(0), _aten.amin.default(rows, [0], True))
    filled = _aten.gt.Scalar(_aten.amax.default(inside, [1], True), 0.5)
    return _aten.where.self(filled, _aten.amax.default(candidates, [1]), torch.zeros((), dtype=rows.dtype))
