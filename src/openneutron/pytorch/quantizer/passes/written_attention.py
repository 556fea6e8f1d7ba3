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
from openneutron.pytorch.graph.rewriting import NodePass, add_call, constant_of, splice
from openneutron.pytorch.operators.annotations import MASKED
from openneutron.pytorch.operators.attention import MOST_KEYS_OF_SOFTMAX, attended

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

_VIEWS = _KEPT_ROWS - {_aten.dropout.default}
_MASKS = (_aten.add.Tensor, _aten.masked_fill.Scalar, _aten.where.self)
_FACTORS = (_aten.mul.Tensor, _aten.mul.Scalar, _aten.div.Tensor, _aten.div.Scalar)

_BUILT_IN = "aten.scaled_dot_product_attention.default"

MOST_UNEVEN = 2
"""The largest ratio of the key counts of two rows with the division last: the reciprocals of all rows' sums share one
scale (``MOST_KEYS_OF_SOFTMAX``)."""


@dataclass(frozen=True, slots=True)
class WrittenAttention(NodePass):
    """Rewrite ``softmax(scores + mask) @ values`` as ``scaled_dot_product_attention`` is decomposed: with a factor of
    the scores on the queries, and with the division last where there are many keys.

    This applies only where nothing else reads the probabilities. keep: calls to leave alone.
    """

    keep: Callable[[Node], bool] | None = None

    targets = _PRODUCTS

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        chain = _to_softmax(node)
        if chain is None or any(map(self._is_kept, (node, *chain))):
            return False
        moved = _move_factors(module, chain[-1])
        return _rewrite(module, node, chain) or moved

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
    scores, values = softmax.args[0], product.args[1]
    assert isinstance(scores, Node) and isinstance(values, Node)
    if not all(isinstance(item.meta.get("val"), FakeTensor) for item in (scores, values)):
        return False
    if softmax.meta["val"].shape[-1] <= MOST_KEYS_OF_SOFTMAX or _is_uneven(module, scores):
        return False

    def function(scores: Tensor, values: Tensor) -> Tensor:
        for view in reversed(views):
            if view.target is not _aten.dropout.default:
                assert isinstance(view.target, torch._ops.OpOverload)
                scores = view.target(scores, *view.args[1:], **view.kwargs)
        return attended(scores, values)

    sources = [scores, values]
    fakes = [source.meta["val"] for source in sources]
    with torch.no_grad(), fakes[0].fake_mode:
        traced = make_fx(function, pre_dispatch=True)(*fakes)
    splice(module, product, traced, sources)
    return True


def _move_factors(module: GraphModule, softmax: Node) -> bool:
    """Move a number that the scores in front of a softmax are multiplied with, or divided by, to the queries."""
    waiting, changed = [softmax.args[0]], False
    while waiting:
        here = waiting.pop()
        if not isinstance(here, Node):
            continue
        if here.target in _MASKS:
            waiting += [source for source in here.args if isinstance(source, Node)]
            continue
        found = _factor_of(module, here)
        product = found and _product_behind(found[0])
        if found and product:
            scaled = add_call(module, product, _aten.mul.Tensor, product.args[0], found[1])
            product.replace_input_with(product.args[0], scaled)
            here.replace_all_uses_with(found[0])
            changed = True
    return changed


def _factor_of(module: GraphModule, node: Node) -> tuple[Node, float] | None:
    """Return the operand and the factor of a product with a number, or of a quotient by one; None for other calls."""
    if node.target not in _FACTORS or len(node.args) != 2 or node.kwargs:
        return None
    data, number = node.args
    if node.target is _aten.mul.Tensor and constant_of(module, data) is not None:
        data, number = number, data
    known = constant_of(module, number)
    factor = float(known) if known is not None and known.numel() == 1 else number
    if not isinstance(data, Node) or not isinstance(factor, (int, float)) or not factor:
        return None
    if data.meta["val"].shape != node.meta["val"].shape or data.meta["val"].dtype != node.meta["val"].dtype:
        return None
    return data, float(factor) if node.target in (_aten.mul.Tensor, _aten.mul.Scalar) else 1 / float(factor)


def _product_behind(node: object) -> Node | None:
    """Return the product of which a node is a view; None where another node reads the product, or the view."""
    while isinstance(node, Node) and len(node.users) == 1:
        if node.target in _PRODUCTS:
            return node
        if node.target not in _VIEWS:
            return None
        node = node.args[0]
    return None


def _is_uneven(module: GraphModule, scores: Node) -> bool:
    """Return whether a constant mask, as ``BooleanMasks`` states it, lets rows see very different numbers of keys, as a causal
    one does."""
    if scores.target is not _aten.add.Tensor:
        return False
    waiting, shape = [scores.args[1]], scores.meta["val"].shape
    while waiting:
        here = waiting.pop()
        known = constant_of(module, here)
        if known is not None and known.numel() > 1:
            hidden = known if known.dtype == torch.bool else known <= MASKED
            seen = (~hidden).expand(shape).sum(-1)
            if bool(seen.max() > MOST_UNEVEN * seen.min().clamp(min=1)):
                return True
        elif isinstance(here, Node) and here.target in (_aten.where.self, _aten.logical_or.default):
            waiting += here.args[: 1 if here.target is _aten.where.self else None]
    return False
