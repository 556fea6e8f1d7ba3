# SPDX-License-Identifier: BSD-3-Clause
"""Attention, and the rotation of positions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from openneutron.pytorch.onnx.operators.table import NodeView, Refused, Values, converts


def _heads(x: Tensor, count: int | None) -> Tensor:
    """Return an operand as (batch, heads, tokens, channels). A 4-D operand has this form. A 3-D operand (batch,
    tokens, channels) has the channels of its ``count`` heads one after the other. Raises Refused for a 3-D operand
    without ``count``."""
    if x.dim() == 4:
        return x
    if not count:
        raise Refused("has operands of 3 axes, and no number of heads")
    batch, tokens, channels = x.shape
    return x.reshape(batch, tokens, count, channels // count).transpose(1, 2)


@converts("Attention")
def _attention(
    node: NodeView,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    past_k: Tensor | None = None,
    past_v: Tensor | None = None,
    lengths: Any = None,
) -> Values:
    if lengths is not None:
        raise Refused("has a number of valid tokens for each sequence")
    flat = q.dim() == 3
    q, k, v = (
        _heads(q, node.get("q_num_heads")),
        _heads(k, node.get("kv_num_heads")),
        _heads(v, node.get("kv_num_heads")),
    )
    k = k if past_k is None else torch.cat([past_k, k], 2)
    v = v if past_v is None else torch.cat([past_v, v], 2)
    present = k, v
    if (groups := q.shape[1] // k.shape[1]) > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    tokens, keys = q.shape[2], k.shape[2]
    if mask is not None and mask.shape[-1] < keys:
        fill = False if mask.dtype == torch.bool else float("-inf")
        mask = F.pad(mask, [0, keys - mask.shape[-1]], value=fill)
    past = 0 if past_k is None else past_k.shape[2]
    causal, left, right = (
        bool(node.get("is_causal", 0)),
        node.get("left_window_size", -1),
        node.get("right_window_size", -1),
    )
    plain = causal and mask is None and not past and tokens == keys and left < 0
    if not plain and (causal or left >= 0 or right >= 0):
        mask, causal = _joined(mask, _seen(tokens, keys, past, left, 0 if causal else right)), False
    scale, cap = node.get("scale"), node.get("softcap", 0.0)
    if not cap and not node.wants(3):
        y = F.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, scale=scale)
        products = None
    else:
        y, products = _written_out(
            node, q, k, v, _joined(mask, _seen(tokens, keys, 0, -1, 0)) if causal else mask, scale, cap
        )
    y = y.transpose(1, 2).flatten(2) if flat else y
    return (y, *present, products) if products is not None else (y, *present)


def _seen(tokens: int, keys: int, past: int, left: int, right: int) -> Tensor:
    """Return a boolean [tokens, keys] that is true where a query may use a key. The first query is at the position
    ``past``. ``left`` and ``right`` are the numbers of keys that a query sees before and after its own position; a
    negative number is no bound."""
    distance = torch.arange(keys) - torch.arange(past, past + tokens).reshape(-1, 1)
    seen = torch.ones(tokens, keys, dtype=torch.bool)
    seen = seen if left < 0 else seen & (distance >= -left)
    return seen if right < 0 else seen & (distance <= right)


def _joined(mask: Tensor | None, seen: Tensor) -> Tensor:
    """Return a mask that also hides what is not seen."""
    if mask is None:
        return seen
    if mask.dtype == torch.bool:
        return mask & seen
    return torch.where(seen, mask, torch.tensor(float("-inf")))


def _written_out(
    node: NodeView, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None, cap: float
) -> tuple[Tensor, Tensor]:
    """Return the result and the products that the node's fourth output asks for."""
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    mode = node.get("qk_matmul_output_mode", 0)
    products = torch.matmul(q * factor**0.5, (k * factor**0.5).transpose(-1, -2))
    capped = cap * torch.tanh(products / cap) if cap else products
    added = capped
    if mask is not None:
        added = torch.where(mask, capped, torch.tensor(float("-inf"))) if mask.dtype == torch.bool else capped + mask
    weights = torch.softmax(added, -1)
    return torch.matmul(weights, v), (products, capped, added, weights)[mode]


@converts("LinearAttention")
def _linear_attention(
    node: NodeView,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    past: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
) -> Values:
    """Return the outputs (batch, tokens, channels) and the last state (batch, heads, key channels, value channels).
    The tokens are computed one after the other.

    If ``past`` is None, the first state is zero. The first token then has no products with the state.
    """
    heads, kv_heads = node.get("q_num_heads"), node.get("kv_num_heads")
    q, k, v = _heads(query, heads), _heads(key, kv_heads), _heads(value, kv_heads)
    factor = node.get("scale", 0.0) or q.shape[-1] ** -0.5
    state, outputs = past, []
    for token in range(q.shape[2]):
        here, new = k[:, :, token].unsqueeze(-1), v[:, :, token].unsqueeze(-2)
        if state is not None and decay is not None:
            state = state * torch.exp(_heads(decay, kv_heads)[:, :, token]).unsqueeze(-1)
        if beta is not None:
            new = new if state is None else new - here.transpose(-1, -2) @ state
            new = beta[:, token].unsqueeze(-1).unsqueeze(-1) * new
        state = here * new if state is None else state + here * new
        read = state.repeat_interleave(heads // kv_heads, 1) if heads > kv_heads else state
        outputs.append(q[:, :, token].unsqueeze(-2) @ read)
    assert state is not None
    return factor * torch.cat(outputs, 2).transpose(1, 2).flatten(2), state
