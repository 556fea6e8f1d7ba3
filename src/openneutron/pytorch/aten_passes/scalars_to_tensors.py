# SPDX-License-Identifier: BSD-3-Clause
"""Numbers in arithmetic become constant tensors, which can be quantized; division by a constant becomes a product."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.aten_passes.constants import add_constant, constant_of

_aten = torch.ops.aten
_ARITHMETIC = (_aten.add.Tensor, _aten.sub.Tensor, _aten.mul.Tensor, _aten.div.Tensor)
_SCALAR_FORMS = {
    _aten.add.Scalar: _aten.add.Tensor,
    _aten.sub.Scalar: _aten.sub.Tensor,
    _aten.mul.Scalar: _aten.mul.Tensor,
    _aten.div.Scalar: _aten.div.Tensor,
}


@dataclass(frozen=True, slots=True)
class ScalarsToTensors:
    """Rewrites ``x + 2`` to ``x + c`` and ``x / 2`` to ``x * c`` on float tensors."""

    def __call__(self, module: GraphModule) -> PassResult:
        return PassResult(module, _scalars_to_tensors(module))


def _scalars_to_tensors(module: GraphModule) -> bool:
    changed = False
    for node in list(module.graph.nodes):
        if node.op != "call_function":
            continue
        target = _SCALAR_FORMS.get(node.target, node.target)
        value = node.meta.get("val")
        if target not in _ARITHMETIC or node.kwargs or not isinstance(value, torch.Tensor):
            continue
        if not value.is_floating_point() or len(node.args) != 2:
            continue
        changed |= _rewrite(module, node, target, value.dtype)
    if changed:
        module.recompile()
    return changed


def _rewrite(module: GraphModule, node: Node, target: torch._ops.OpOverload, dtype: torch.dtype) -> bool:
    left, right = node.args
    if target is _aten.div.Tensor:
        divisor = torch.tensor(right) if isinstance(right, (int, float)) else constant_of(module, right)
        if divisor is None or not isinstance(left, Node) or bool((divisor == 0).any()):
            return False
        node.target = _aten.mul.Tensor
        node.args = (left, add_constant(module, node, f"{node.name}_reciprocal", (1.0 / divisor).to(dtype)))
        return True
    args = tuple(
        add_constant(module, node, f"{node.name}_constant", torch.tensor(arg, dtype=dtype))
        if isinstance(arg, (int, float))
        else arg
        for arg in (left, right)
    )
    if args == (left, right):
        return False
    node.target, node.args = target, args
    return True
