# SPDX-License-Identifier: BSD-3-Clause
"""Products with a constant matrix become linear layers, whose weights the NPU keeps packed, and constants added behind them
their biases."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from openneutron.pytorch.graph.rewriting import NodePass, add_call, add_constant, constant_of

_aten = torch.ops.aten
_PRODUCTS = (_aten.matmul.default, _aten.mm.default, _aten.bmm.default)


@dataclass(frozen=True, slots=True)
class ProductsToLinear(NodePass):
    """Rewrite ``x @ w`` to ``linear(x, w.T)``, ``w @ x`` to ``linear(x.T, w).T`` and ``linear(x, w) + b`` to ``linear(x, w, b)``
    where w and b are constants; w has one or two dimensions. A linear layer whose weights are computed becomes a product and a
    sum."""

    targets = (*_PRODUCTS, _aten.addmm.default, _aten.linear.default)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        changed = _is_float(node) and _to_linear(module, node)
        return (node.target is _aten.linear.default and _take_bias(module, node)) or changed


def _is_float(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.dtype == torch.float32


def _to_linear(module: GraphModule, node: Node) -> bool:
    if node.target is _aten.addmm.default:
        bias, data, matrix = (constant_of(module, item) for item in node.args[:3])
        scaled = any(node.kwargs.get(name, 1) != 1 for name in ("alpha", "beta"))
        if bias is None or matrix is None or data is not None or bias.dim() != 1 or scaled:
            return False
        weight = add_constant(module, node, f"{node.name}_weight", matrix.t().contiguous())
        width = matrix.shape[1]
        added = add_constant(module, node, f"{node.name}_bias", bias.expand(width).contiguous())
        node.target, node.args, node.kwargs = _aten.linear.default, (node.args[1], weight, added), {}
        return True
    if node.target is _aten.linear.default:
        return constant_of(module, node.args[1]) is None and _to_product(module, node)
    first, second = (constant_of(module, item) for item in node.args)
    if first is None and second is not None and second.dim() <= 2:
        return _right_constant(module, node, second)
    if first is not None and second is None and first.dim() <= 2:
        return _left_constant(module, node, first)
    return False


def _to_product(module: GraphModule, node: Node) -> bool:
    data, weight, *rest = node.args
    assert isinstance(weight, Node)
    rank = weight.meta["val"].dim()
    turned = add_call(module, node, _aten.permute.default, weight, list(range(rank))[::-1])
    bias = rest[0] if rest else node.kwargs.get("bias")
    if bias is None:
        node.target, node.args, node.kwargs = _aten.matmul.default, (data, turned), {}
    else:
        product = add_call(module, node, _aten.matmul.default, data, turned)
        node.target, node.args, node.kwargs = _aten.add.Tensor, (product, bias), {}
    return True


def _right_constant(module: GraphModule, node: Node, matrix: Tensor) -> bool:
    data = node.args[0]
    assert isinstance(data, Node)
    turned = matrix.reshape(1, -1) if matrix.dim() == 1 else matrix.t()
    weight = add_constant(module, node, f"{node.name}_weight", turned.contiguous())
    if matrix.dim() == 2:
        node.target, node.args = _aten.linear.default, (data, weight)
        return True
    result = add_call(module, node, _aten.linear.default, data, weight)
    node.target, node.args = _aten.squeeze.dim, (result, -1)
    return True


def _left_constant(module: GraphModule, node: Node, matrix: Tensor) -> bool:
    data = node.args[1]
    assert isinstance(data, Node)
    rank = data.meta["val"].dim()
    rows = matrix.reshape(1, -1) if matrix.dim() == 1 else matrix
    weight = add_constant(module, node, f"{node.name}_weight", rows.contiguous())
    if rank == 1:
        # A vector on the right: the rows' products with it.
        node.target, node.args = _aten.linear.default, (data, weight)
        return True
    last_two = [*range(rank - 2), rank - 1, rank - 2]
    turned = add_call(module, node, _aten.permute.default, data, last_two)
    result = add_call(module, node, _aten.linear.default, turned, weight)
    if matrix.dim() == 1:
        node.target, node.args = _aten.squeeze.dim, (result, -1)
    else:
        node.target, node.args = _aten.permute.default, (result, last_two)
    return True


def _take_bias(module: GraphModule, linear: Node) -> bool:
    """Make the constant that the linear layer's only reader adds the layer's bias."""
    if (len(linear.args) > 2 and linear.args[2] is not None) or len(linear.users) != 1:
        return False
    (user,) = linear.users
    if user.target is not _aten.add.Tensor or user.kwargs or len(user.args) != 2:
        return False
    added = next((constant_of(module, item) for item in user.args if item is not linear), None)
    value = linear.meta["val"]
    width = value.shape[-1] if value.dim() else 1
    if added is None or added.dtype != value.dtype or added.numel() not in (1, width):
        return False
    if (added.numel() > 1 and added.shape[-1] != width) or user.meta["val"].shape != value.shape:
        return False
    bias = add_constant(module, linear, f"{linear.name}_bias", added.reshape(-1).expand(width).contiguous())
    linear.args = (*linear.args[:2], bias)
    user.replace_all_uses_with(linear)
    module.graph.erase_node(user)
    return True
