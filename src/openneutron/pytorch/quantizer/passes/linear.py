# SPDX-License-Identifier: BSD-3-Clause
"""Turn products with constant matrices into linear layers, split layers into their projections, and fold factors into weights.

The NPU stores the weights of a linear layer packed, and adds a constant after the layer as the bias. A layer with several projections, such
as the queries, keys and values of attention, becomes one layer for each. Each result then has a scale of its own and needs no slice. A
factor of a layer's result is folded into the weights, or moved in front of a masked fill.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from openneutron.pytorch.graph.program import Change, is_move
from openneutron.pytorch.graph.rewriting import NodePass, add_call, add_constant, constant_of, replace
from openneutron.pytorch.operators.comparison import out_of_reach

_aten = torch.ops.aten

_PRODUCTS = (_aten.matmul.default, _aten.mm.default, _aten.bmm.default)


@dataclass(frozen=True, slots=True)
class ProductsToLinear(NodePass):
    """Rewrite products with constants as linear layers, and the reverse if the weights are computed.

    ``x @ w`` becomes ``linear(x, w.T)``, ``w @ x`` becomes ``linear(x.T, w).T``, and ``linear(x, w) + b`` becomes ``linear(x, w, b)``,
    where w and b are constants and w has one or two dimensions. A linear layer whose weights are computed becomes a product and a sum.
    """

    targets = (*_PRODUCTS, _aten.addmm.default, _aten.linear.default)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        value = node.meta.get("val")
        changed = isinstance(value, Tensor) and value.dtype == torch.float32 and _to_linear(module, node)
        return (node.target is _aten.linear.default and _take_bias(module, node)) or changed


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
    """Turn a constant that is added to the result of a linear layer into the layer's bias, or add it to the bias that
    the layer has. The sum must be the layer's only reader.

    Return whether there was such a constant.
    """
    before = linear.args[2] if len(linear.args) > 2 else None
    known = constant_of(module, before)
    if len(linear.users) != 1 or (before is not None and known is None):
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
    whole = added.reshape(-1).expand(width) + (0 if known is None else known)
    bias = add_constant(module, linear, f"{linear.name}_bias", whole.contiguous())
    linear.args = (*linear.args[:2], bias)
    return replace(user, linear)


PRODUCTS = (_aten.mul.Tensor, _aten.mul.Scalar)
QUOTIENTS = (_aten.div.Tensor, _aten.div.Scalar)
_LAYERS = (_aten.linear.default, _aten.conv1d.default, _aten.conv2d.default, _aten.conv2d.padding)


@dataclass(frozen=True, slots=True)
class FoldFactors(NodePass):
    """Fold a factor of a layer's result, such as the scaling factor of attention's queries, into the weights and the
    bias of the layer.

    Views may be between the layer and the product. No other node may read the layer's result.
    """

    targets = (*PRODUCTS, *QUOTIENTS)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        return _fold(module, node)


def _fold(module: GraphModule, product: Node) -> bool:
    factor, data = factor_of(module, product), product.args[0]
    if factor is None or not isinstance(data, Node) or data.meta["val"].dtype != product.meta["val"].dtype:
        return False
    layer = data
    while is_move(layer, Change.PERMUTED) and len(layer.users) == 1 and isinstance(layer.args[0], Node):
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
    return replace(product, data)


def factor_of(module: GraphModule, product: Node) -> float | None:
    """Return the number by which a product or a quotient multiplies its first operand, or None for 0 and for other nodes."""
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
    """Rewrite ``where(mask, x, -1e9)`` as ``masked_fill(x, ~mask, -1e9)``, and move factors in front of masked fills.

    In the ``where``, the number is a constant tensor. ``masked_fill(x, mask, value) * factor`` becomes
    ``masked_fill(x * factor, mask, value * factor)``. A quotient or a negation counts as a product. In int8, the fill
    value saturates at an end of the range. The range of a softmax's input is chosen so that this end is still far
    below the largest value of each row.
    """

    targets = (_aten.where.self, _aten.neg.default, *PRODUCTS, *QUOTIENTS)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        return (_choice_to_fill if node.target is _aten.where.self else _product_first)(module, node)


def _choice_to_fill(module: GraphModule, choice: Node) -> bool:
    """Replace a selection between a tensor and a constant filler by a fill. Return whether the node was such a
    selection."""
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
    return replace(choice, fill)


def _filler(module: GraphModule, operand: object) -> float | None:
    """Return the number that all elements of a constant tensor have, if it is a fill value of masks, else None."""
    held = constant_of(module, operand)
    if held is None or not held.is_floating_point() or not held.numel():
        return None
    value = float(held.reshape(-1)[0])
    return value if out_of_reach(value) and bool((held == value).all()) else None


def _product_first(module: GraphModule, product: Node) -> bool:
    """Exchange a product with the fill that only it reads. Return whether the node was such a product."""
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


CUTS = frozenset((_aten.select.int, _aten.slice.Tensor))
"""Operators that return a part of their input: select and slice."""


@dataclass(frozen=True, slots=True)
class SplitProjections(NodePass):
    """Split each linear layer whose readers all read a range of its output features into one layer for each range."""

    targets = (_aten.linear.default,)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        return _split(module, node)


def _split(module: GraphModule, layer: Node) -> bool:
    weight, shape = constant_of(module, layer.args[1]), layer.meta["val"].shape
    bias_node = layer.args[2] if len(layer.args) > 2 else None
    bias = constant_of(module, bias_node)
    if weight is None or layer.kwargs or (bias is None and bias_node is not None):
        return False
    if not all(isinstance(extent, int) for extent in shape):
        return False
    cuts = list(_cuts_behind(layer))
    if len(cuts) < 2 or any(cut is None for cut in cuts):
        return False
    runs = {cut: _features_of(layer, cut) for cut in cuts if cut is not None}
    if any(run is None or len(run) == shape[-1] for run in runs.values()):
        return False
    for cut, run in runs.items():
        assert run is not None
        _replace(module, layer, cut, weight[run.start : run.stop], None if bias is None else bias[run.start : run.stop])
    return True


def _cuts_behind(node: Node) -> Iterator[Node | None]:
    """Yield the operators of ``CUTS`` that read a node's result or a view of it, and None for any other reader."""
    for user in node.users:
        if user.target in CUTS:
            yield user
        elif is_move(user, Change.PERMUTED):
            yield from _cuts_behind(user)
        else:
            yield None


def _features_of(layer: Node, cut: Node) -> range | None:
    """Return the output features that an operator of ``CUTS`` reads as a range, or None if they are not a range.

    They are found by applying the operator to the indices of the features.
    """
    shape = layer.meta["val"].shape
    places = torch.arange(math.prod(shape)).reshape(shape)
    chain = [cut]
    while chain[-1] is not layer:
        source = chain[-1].args[0]
        assert isinstance(source, Node)
        chain.append(source)
    taken = places
    for node in reversed(chain[:-1]):
        assert isinstance(node.target, torch._ops.OpOverload)
        taken = node.target(taken, *node.args[1:], **node.kwargs)
    features = shape[-1]
    rows = places.numel() // features
    if not taken.numel() or taken.numel() % rows:
        return None
    start = int(taken.flatten()[0])
    run = range(start, start + taken.numel() // rows)
    if run.stop > features or not torch.equal(taken.flatten(), places[..., run.start : run.stop].flatten()):
        return None
    return run


def _replace(module: GraphModule, layer: Node, cut: Node, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    stem = str(getattr(layer.args[1], "target", layer.name))
    parts = [add_constant(module, layer, f"{stem}_{cut.name}", weight.clone())]
    if bias is not None:
        parts.append(add_constant(module, layer, f"{stem}_{cut.name}_bias", bias.clone()))
    part = add_call(module, cut, _aten.linear.default, layer.args[0], *parts)
    part.meta = {**layer.meta, "val": part.meta["val"]}
    view = add_call(module, cut, _aten.reshape.default, part, list(cut.meta["val"].shape))
    cut.replace_all_uses_with(view)
