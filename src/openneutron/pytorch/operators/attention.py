# SPDX-License-Identifier: BSD-3-Clause
"""Attention: products of matrices and a softmax between them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from openneutron.pytorch.operators.annotations import MASKED
from openneutron.pytorch.operators.rules.tables import KEPT, Keep, decomposes

MOST_KEYS_OF_SOFTMAX = 16
"""The limit on keys for LiteRT's SOFTMAX, whose result has the fixed scale 1/256.

With n equal probabilities rounded to that scale, the weighted mean of n values has a signal-to-noise ratio of 58.9 - 20 log10(n)
dB: 34.8 at 16 keys, 28.8 at 32, 16.8 at 128. For more keys, the exponentials relative to the largest of their row are multiplied
by the values, and the products by the reciprocal of the row's sum: 37 dB at 32 and at 128 keys. A causal mask always uses SOFTMAX:
it makes the sums of some rows many times larger than others, so that their reciprocals have few steps, and the two methods are
equally accurate (25 and 24 dB at 128 keys).
"""


@decomposes("aten.scaled_dot_product_attention.default")
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    **_: object,
) -> Tensor | Keep:
    if dropout_p:
        return KEPT
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    query = query if factor == 1 else query * factor
    scores = _masked(_product(query, key.transpose(-2, -1)), attn_mask, is_causal)
    return attended(scores, value, is_causal)


def attended(scores: Tensor, value: Tensor, is_causal: bool = False) -> Tensor:
    """Compute softmax(scores) @ value, with the division last if that is more accurate (see ``MOST_KEYS_OF_SOFTMAX``)."""
    if is_causal or scores.shape[-1] <= MOST_KEYS_OF_SOFTMAX:
        return _product(torch.softmax(scores, -1), value)
    parts = torch.exp(scores - scores.amax(-1, keepdim=True))
    return _product(parts, value) * torch.reciprocal(parts.mean(-1, keepdim=True) * scores.shape[-1])


def _product(rows: Tensor, matrix: Tensor) -> Tensor:
    """Return rows @ matrix. Several heads of ``rows`` that share a head of ``matrix`` are joined to one head of more rows, without
    a copy."""
    if (
        min(rows.dim(), matrix.dim()) < 3
        or rows.shape[-3] == matrix.shape[-3]
        or 1 in (rows.shape[-3], matrix.shape[-3])
    ):
        return torch.matmul(rows, matrix)
    *batch, heads, length, depth = rows.shape
    groups = matrix.shape[-3]
    grouped = torch.matmul(rows.reshape(*batch, groups, heads // groups * length, depth), matrix)
    return grouped.reshape(*batch, heads, length, matrix.shape[-1])


def _masked(scores: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
    """Return the scores plus the mask, in which ``MASKED`` replaces False and numbers below it, such as -infinity."""
    if is_causal:
        rows, columns = scores.shape[-2:]
        scores = scores + torch.full((rows, columns), MASKED).triu(1)
    if mask is None:
        return scores
    if mask.dtype == torch.bool:
        return scores + torch.where(mask, 0.0, MASKED)
    return scores + mask.clamp(min=MASKED)
