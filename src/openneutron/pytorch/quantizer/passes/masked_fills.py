# SPDX-License-Identifier: BSD-3-Clause
"""Put fills that stand for no value directly in front of the softmax that reads them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.graph.constants import constant_of
from openneutron.pytorch.graph.rewriting import finished
from openneutron.pytorch.operators.comparison.decompose import out_of_reach
from openneutron.pytorch.quantizer.passes.fold_factors import factor_of

_aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class MaskedFills:
    """Rewrite ``where(mask, x, -1e9)`` as ``masked_fill(x, ~mask, -1e9)``, where the number is a constant tensor, and
    ``masked_fill(x, mask, value) * factor`` as ``masked_fill(x * factor, mask, value * factor)``.

    A quotient and a negation count as a product. The filler saturates at an end of its int8 range. Directly in front of a
    softmax, that range leaves the filler far below each row's largest value.
    """

    def __call__(self, module: GraphModule) -> PassResult:
        changed = False
        for node in list(module.graph.nodes):
            if node.op == "call_function":
                changed |= _choice_to_fill(module, node) or _product_first(module, node)
        return finished(module, changed)


def _choice_to_fill(module: GraphModule, choice: Node) -> bool:
    """Replace a choice between a tensor and a constant filler. Return False where the node is no such choice."""
    if choice.target is not _aten.where.self:
        return False
    condition, first, second = choice.args
    data, value = (second, _filler(module, first)) if _filler(module, first) else (first, _filler(module, second))
    if value is None or not isinstance(data, Node) or data.meta["val"].shape != choice.meta["val"].shape:
        return False
    with module.graph.inserting_before(choice):
        if data is first:
            condition = module.graph.call_function(_aten.logical_not.default, (condition,))
            condition.meta["val"] = choice.args[0].meta["val"]
        fill = module.graph.call_function(_aten.masked_fill.Scalar, (data, condition, value))
    fill.meta = dict(choice.meta)
    choice.replace_all_uses_with(fill)
    module.graph.erase_node(choice)
    return True


def _filler(module: GraphModule, operand: object) -> float | None:
    """Return the number that a constant tensor holds everywhere where that number stands for no value."""
    held = constant_of(module, operand)
    if held is None or not held.is_floating_point() or not held.numel():
        return None
    value = float(held.reshape(-1)[0])
    return value if out_of_reach(value) and bool((held == value).all()) else None


def _product_first(module: GraphModule, product: Node) -> bool:
    """Exchange a product and the fill that it reads alone. Return False where the node is no such product."""
    factor = -1.0 if product.target is _aten.neg.default else factor_of(module, product)
    fill = product.args[0] if product.args else None
    if factor is None or not isinstance(fill, Node) or fill.target is not _aten.masked_fill.Scalar:
        return False
    data, mask, value = fill.args
    assert isinstance(data, Node) and isinstance(value, (int, float))
    if len(fill.users) != 1 or data.meta["val"].shape != fill.meta["val"].shape:
        return False
    product.replace_input_with(fill, data)
    product.replace_all_uses_with(fill)
    fill.args = (product, mask, value * factor)
    product.append(fill)
    return True
