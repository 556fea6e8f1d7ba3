# SPDX-License-Identifier: BSD-3-Clause
"""Attention that a model spells out: a product of a softmax with values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch._subclasses import FakeTensor
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from openneutron.pytorch.graph.program import WRITTEN_AS
from openneutron.pytorch.graph.rewriting import NodePass, constant_of, splice
from openneutron.pytorch.operators.attention.decompose import MASKED, MOST_KEYS_OF_SOFTMAX, attended

_aten = torch.ops.aten
_PRODUCTS = (_aten.matmul.default, _aten.bmm.default)
_SOFTMAX = (_aten.softmax.int, _aten._softmax.default)
_KEPT_ROWS = frozenset(
    (
        _aten.alias.default,
        _aten.clone.default,
        _aten.contiguous.default,
        _aten.dropout.default,
        _aten.expand.default,
        _aten.permute.default,
        _aten.reshape.default,
        _aten.unsqueeze.default,
        _aten.view.default,
    )
)
"""Operators that may stand between the softmax and the product, because they keep rows as they are."""

_BUILT_IN = "aten.scaled_dot_product_attention.default"

MOST_UNEVEN = 2
"""The largest ratio of the key counts of two rows with the division last: the reciprocals of all rows' sums share one
scale (``MOST_KEYS_OF_SOFTMAX``)."""


@dataclass(frozen=True, slots=True)
class WrittenAttention(NodePass):
    """Rewrite ``softmax(scores + mask) @ values`` as ``scaled_dot_product_attention`` is decomposed: with the division
    last where there are many keys, and with ``MASKED`` for a mask's -infinity.

    This applies only where nothing else reads the probabilities. keep: calls to leave alone.
    """

    keep: Callable[[Node], bool] | None = None

    targets = _PRODUCTS

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        chain = _to_softmax(node)
        return chain is not None and not any(map(self._is_kept, (node, *chain))) and _rewrite(module, node, chain)

    def _is_kept(self, node: Node) -> bool:
        written = node.meta.get("custom", {}).get(WRITTEN_AS) == _BUILT_IN
        return written or (self.keep is not None and self.keep(node))


def _to_softmax(product: Node) -> list[Node] | None:
    """Return the nodes from a product's first operand back to a softmax over the summed axis.

    Returns None where there are no such nodes, or where other nodes read one of them.
    """
    here, chain = product.args[0], []
    keys = product.meta["val"].dim() and product.args[1].meta["val"].shape[-2:][0]
    while isinstance(here, Node) and here.op == "call_function" and len(here.users) == 1:
        value = here.meta.get("val")
        if not isinstance(value, FakeTensor) or value.dtype != torch.float32 or value.shape[-1:] != (keys,):
            return None
        chain.append(here)
        if here.target in _SOFTMAX:
            return chain if here.args[1] in (-1, value.dim() - 1) and isinstance(here.args[0], Node) else None
        if not _keeps_rows(here):
            return None
        here = here.args[0]
    return None


def _keeps_rows(node: Node) -> bool:
    if node.target is _aten.dropout.default:
        return not node.args[2]
    if node.target is _aten.permute.default:
        order = node.args[1]
        assert isinstance(order, (list, tuple))
        return order[-1] in (-1, len(order) - 1)
    return node.target in _KEPT_ROWS


def _rewrite(module: GraphModule, product: Node, chain: list[Node]) -> bool:
    *views, softmax = chain
    scores, masked, is_causal = _unmasked(module, softmax.args[0])
    values = product.args[1]
    assert isinstance(values, Node)
    if not all(isinstance(item.meta.get("val"), FakeTensor) for item in (scores, values)):
        return False
    if masked is None and (is_causal or softmax.meta["val"].shape[-1] <= MOST_KEYS_OF_SOFTMAX):
        return False
    sources = [scores, values] if not isinstance(masked, Node) else [scores, values, masked]

    def function(scores: Tensor, values: Tensor, *mask: Tensor) -> Tensor:
        if mask:
            scores = scores + (
                torch.where(mask[0], MASKED, 0.0) if mask[0].dtype == torch.bool else mask[0].clamp(min=MASKED)
            )
        for view in reversed(views):
            if view.target is not _aten.dropout.default:
                assert isinstance(view.target, torch._ops.OpOverload)
                scores = view.target(scores, *view.args[1:], **view.kwargs)
        return attended(scores, values, is_causal)

    fakes = [source.meta["val"] for source in sources]
    with torch.no_grad(), fakes[0].fake_mode:
        traced = make_fx(function, pre_dispatch=True)(*fakes)
    splice(module, product, traced, sources)
    return True


def _unmasked(module: GraphModule, scores: Node) -> tuple[Node, Node | None, bool]:
    """Return the scores without their mask, the mask, and whether the mask is uneven.

    The mask is true or below 0 where a score does not count, or None where no rewrite is needed. An uneven mask, such
    as a causal one, lets rows see very different numbers of keys.
    """
    if scores.target is _aten.add.Tensor and not scores.kwargs:
        for data, mask in (scores.args[:2], scores.args[1::-1]):
            known = constant_of(module, mask)
            if known is not None and isinstance(data, Node) and known.is_floating_point() and known.numel() > 1:
                hidden = known <= MASKED
                stays = not bool(hidden.any()) or data.meta["val"].shape != scores.meta["val"].shape
                return (scores, None, False) if stays else (data, mask, _is_uneven(hidden, scores))
    filled = _filled(module, scores)
    if filled is not None:
        known = constant_of(module, filled[1])
        return *filled, known is not None and _is_uneven(known, scores)
    return scores, None, False


def _filled(module: GraphModule, scores: Node) -> tuple[Node, Node] | None:
    """Return the scores before a fill with ``MASKED`` or less, and the mask of the filled positions; None for other
    calls."""
    if scores.target is _aten.masked_fill.Scalar:
        data, mask, number = scores.args
    elif scores.target is _aten.where.self:
        mask, filler, data = scores.args
        known = constant_of(module, filler)
        number = float(known) if known is not None and known.numel() == 1 else 0.0
    else:
        return None
    assert isinstance(data, Node) and isinstance(mask, Node)
    fits = data.meta["val"].shape == scores.meta["val"].shape
    return (data, mask) if fits and isinstance(number, (int, float)) and number <= MASKED else None


def _is_uneven(hidden: Tensor, scores: Node) -> bool:
    seen = (~hidden.expand(scores.meta["val"].shape)).sum(-1)
    return bool(seen.max() > MOST_UNEVEN * seen.min().clamp(min=1))
