# SPDX-License-Identifier: BSD-3-Clause
"""Rewrite arithmetic to sums, differences and products of tensors, so that numbers can be quantized as constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch.fx import GraphModule, Node

from openneutron.pytorch.graph.rewriting import NodePass, add_constant, constant_of

_aten = torch.ops.aten
_ARITHMETIC = (_aten.add.Tensor, _aten.sub.Tensor, _aten.mul.Tensor, _aten.div.Tensor)
_TURNED = (_aten.rsub.Scalar, _aten.rsub.Tensor)
_EXTREMA = {_aten.maximum.default: "min", _aten.minimum.default: "max"}
_SCALAR_FORMS = {
    _aten.add.Scalar: _aten.add.Tensor,
    _aten.sub.Scalar: _aten.sub.Tensor,
    _aten.mul.Scalar: _aten.mul.Tensor,
    _aten.div.Scalar: _aten.div.Tensor,
}

Known = Callable[[object], torch.Tensor | None]
"""The tensor that a node holds, where it is a constant."""


@dataclass(frozen=True, slots=True)
class ScalarsToTensors(NodePass):
    """Rewrite arithmetic on float tensors: ``x + 2`` to ``x + c``, ``x / 2`` to ``x * c``, ``x / y`` to ``x * (1 / y)``,
    ``2 - x`` (rsub) to ``c - x``, ``x + 3 * y`` (alpha) to ``x + y * c`` and the larger of ``x`` and a number to a clamp.

    training: parameters that are trained do not count as constants, so that they go on being trained.

    1 / y is quantized as any function of one tensor is: where y comes near 0, its range is that of the largest quotient
    seen in calibration, and the quotients of larger y have few steps left.
    """

    training: bool = False

    targets = (*_ARITHMETIC, *_TURNED, *_EXTREMA, *_SCALAR_FORMS)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        def known(item: Any) -> torch.Tensor | None:
            held = constant_of(module, item)
            trained = held is not None and self.training and attrgetter(str(item.target))(module).requires_grad
            return None if trained else held

        return _is_float(node) and _rewrite(module, node, node.meta["val"], known)


def _rewrite(module: GraphModule, node: Node, value: torch.Tensor, known: Known) -> bool:
    if node.target in _EXTREMA:
        return _to_clamp(node, known)
    target = _SCALAR_FORMS.get(node.target, node.target)
    if len(node.args) not in (2, 3) or set(node.kwargs) - {"alpha"}:
        return False
    if not all(isinstance(item, (int, float)) or _is_float(item) for item in node.args[:2]):
        return False
    left, right = node.args[:2]
    alpha = node.args[2] if len(node.args) > 2 else node.kwargs.get("alpha", 1)
    if target is _aten.div.Tensor:
        return _to_product(module, node, left, right, known)
    if target in _TURNED:
        target, left, right = _aten.sub.Tensor, right, left
    right = _scaled(module, node, right, alpha, known)
    args = tuple(
        add_constant(module, node, f"{node.name}_constant", torch.tensor(item, dtype=value.dtype))
        if isinstance(item, (int, float))
        else item
        for item in (left, right)
    )
    if (node.target, node.args, node.kwargs) == (target, args, {}):
        return False
    node.target, node.args, node.kwargs = target, args, {}
    return True


def _is_float(item: object) -> bool:
    value = item.meta.get("val") if isinstance(item, Node) else None
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _to_clamp(node: Node, known: Known) -> bool:
    """Replace a maximum or minimum with a number by a clamp: the number would stretch the range that both operands share."""
    for bound, data in (node.args, node.args[::-1]):
        number = known(bound)
        if number is None or number.numel() != 1 or not isinstance(data, Node):
            continue
        if data.meta["val"].shape == node.meta["val"].shape:
            node.kwargs = {_EXTREMA[node.target]: float(number)}
            node.target, node.args = _aten.clamp.default, (data,)
            return True
    return False


def _to_product(module: GraphModule, node: Node, left: object, right: object, known: Known) -> bool:
    divisor = torch.tensor(right) if isinstance(right, (int, float)) else known(right)
    if not isinstance(left, Node) or (divisor is not None and bool((divisor == 0).any())):
        return False
    if divisor is not None:
        dtype = node.meta["val"].dtype
        factor = add_constant(module, node, f"{node.name}_reciprocal", (1.0 / divisor).to(dtype))
    else:
        assert isinstance(right, Node)
        with module.graph.inserting_before(node):
            factor = module.graph.call_function(_aten.reciprocal.default, (right,))
        factor.meta = {**node.meta, "val": right.meta["val"]}
    node.target, node.args = _aten.mul.Tensor, (left, factor)
    return True


def _scaled(module: GraphModule, node: Node, item: object, alpha: object, known: Known) -> object:
    """Return the operand times ``alpha``."""
    assert isinstance(alpha, (int, float))
    if alpha == 1:
        return item
    if isinstance(item, (int, float)):
        return item * alpha
    assert isinstance(item, Node)
    constant = known(item)
    if constant is not None:
        return add_constant(module, node, f"{node.name}_scaled", constant * alpha)
    factor = add_constant(module, node, f"{node.name}_alpha", torch.tensor(alpha, dtype=item.meta["val"].dtype))
    with module.graph.inserting_before(node):
        product = module.graph.call_function(_aten.mul.Tensor, (item, factor))
    product.meta = {**node.meta, "val": item.meta["val"]}
    return product
