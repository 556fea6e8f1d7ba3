# SPDX-License-Identifier: BSD-3-Clause
"""Move products with a number: into the weights of a layer, or in front of a masked fill."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node

from openneutron.pytorch.graph.rewriting import NodePass, add_constant, constant_of
from openneutron.pytorch.operators.comparison.decompose import out_of_reach
from openneutron.pytorch.quantizer.passes.split_projections import VIEWS

_aten = torch.ops.aten
PRODUCTS = (_aten.mul.Tensor, _aten.mul.Scalar)
QUOTIENTS = (_aten.div.Tensor, _aten.div.Scalar)
_LAYERS = (_aten.linear.default, _aten.conv1d.default, _aten.conv2d.default, _aten.conv2d.padding)


@dataclass(frozen=True, slots=True)
class FoldFactors(NodePass):
    """Fold each factor, such as attention's of its queries, into the layer before it, also through views of the layer's result, where nothing else reads that result.

    keep: products to leave alone.
    """

    keep: Callable[[Node], bool] | None = None

    targets = (*PRODUCTS, *QUOTIENTS)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        return (self.keep is None or not self.keep(node)) and _fold(module, node)


def _fold(module: GraphModule, product: Node) -> bool:
    factor, data = factor_of(module, product), product.args[0]
    if factor is None or not isinstance(data, Node) or data.meta["val"].dtype != product.meta["val"].dtype:
        return False
    layer = data
    while layer.target in VIEWS and len(layer.users) == 1 and isinstance(layer.args[0], Node):
        layer = layer.args[0]
    if layer.target not in _LAYERS or len(layer.users) != 1 or layer.kwargs:
        return False
    weight = constant_of(module, layer.args[1])
    bias_node = layer.args[2] if len(layer.args) > 2 else None
    bias = constant_of(module, bias_node)
    if weight is None or (bias is None and bias_node is not None):
        return False
    stem = str(getattr(layer.args[1], "target", layer.name))
    args = list(layer.args)
    args[1] = add_constant(module, layer, f"{stem}_scaled", weight * factor)
    if bias is not None:
        args[2] = add_constant(module, layer, f"{stem}_scaled_bias", bias * factor)
    layer.args = tuple(args)
    product.replace_all_uses_with(data)
    module.graph.erase_node(product)
    return True


def factor_of(module: GraphModule, product: Node) -> float | None:
    """Return the number that a product or a quotient multiplies its first operand by. None for 0 and for other nodes."""
    if product.target not in (*PRODUCTS, *QUOTIENTS):
        return None
    if len(product.args) != 2 or product.kwargs:
        return None
    operand = product.args[1]
    held = constant_of(module, operand)
    if held is not None:
        if held.dim():
            return None
        operand = held.item()
    if not isinstance(operand, (int, float)) or operand == 0 or not math.isfinite(operand):
        return None
    return 1 / operand if product.target in QUOTIENTS else float(operand)


@dataclass(frozen=True, slots=True)
class MaskedFills(NodePass):
    """Rewrite ``where(mask, x, -1e9)`` as ``masked_fill(x, ~mask, -1e9)``, where the number is a constant tensor, and
    ``masked_fill(x, mask, value) * factor`` as ``masked_fill(x * factor, mask, value * factor)``.

    A quotient and a negation count as a product. The filler saturates at an end of its int8 range. Directly in front of a
    softmax, that range leaves the filler far below each row's largest value.
    """

    targets = (_aten.where.self, _aten.neg.default, *PRODUCTS, *QUOTIENTS)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        return (_choice_to_fill if node.target is _aten.where.self else _product_first)(module, node)


def _choice_to_fill(module: GraphModule, choice: Node) -> bool:
    """Replace a choice between a tensor and a constant filler. Return False where the node is no such choice."""
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
