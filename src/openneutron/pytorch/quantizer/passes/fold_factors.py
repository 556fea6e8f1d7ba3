# SPDX-License-Identifier: BSD-3-Clause
"""A product with a number goes into the weights of the layer before it: attention's factor of its queries, for instance."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.graph.constants import add_constant, constant_of
from openneutron.pytorch.graph.rewriting import finished
from openneutron.pytorch.quantizer.passes.split_projections import VIEWS

_aten = torch.ops.aten
_PRODUCTS = (_aten.mul.Tensor, _aten.mul.Scalar)
_QUOTIENTS = (_aten.div.Tensor, _aten.div.Scalar)
_LAYERS = (_aten.linear.default, _aten.conv1d.default, _aten.conv2d.default, _aten.conv2d.padding)


@dataclass(frozen=True, slots=True)
class FoldFactors:
    """Folds each factor it can, also through views of the layer's result, where nothing else reads that.

    keep: products to leave alone.
    """

    keep: Callable[[Node], bool] | None = None

    def __call__(self, module: GraphModule) -> PassResult:
        changed = False
        for node in list(module.graph.nodes):
            if node.op == "call_function" and node.target in (*_PRODUCTS, *_QUOTIENTS):
                changed |= _fold(module, node, self.keep)
        return finished(module, changed)


def _fold(module: GraphModule, product: Node, keep: Callable[[Node], bool] | None) -> bool:
    factor, data = factor_of(module, product), product.args[0]
    if keep is not None and keep(product):
        return False
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
    if product.target not in (*_PRODUCTS, *_QUOTIENTS):
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
    return 1 / operand if product.target in _QUOTIENTS else float(operand)
