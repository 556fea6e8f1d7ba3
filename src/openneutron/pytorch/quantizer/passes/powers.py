# SPDX-License-Identifier: BSD-3-Clause
"""Logarithms and roots of sums of two squares, such as the power of a spectrum, from the logarithms of the squares.

Squares have twice the dynamic range of their operands, and one scale for all of them leaves no steps for the small ones, which a
logarithm or a root shows again. With a = log(x * x) and b = log(y * y), log(x * x + y * y) is the larger of a and b plus
log(1 + exp(-|a - b|)): tables, a maximum, a difference and a sum of values that int8 holds well.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch._subclasses import FakeTensor
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from openneutron.pytorch.graph.rewriting import NodePass, constant_of, splice

_aten = torch.ops.aten

_LOGARITHMS = {_aten.log.default: 1.0, _aten.log2.default: 1 / math.log(2), _aten.log10.default: 1 / math.log(10)}
"""Each as a multiple of the natural logarithm."""

_SUMS = (_aten.add.Tensor, _aten.add.Scalar)
_ENDS = (_aten.clamp.default, _aten.clamp_min.default)

LEAST_POWER = 1e-12
"""The least value of a sum of squares to which nothing is added: its logarithm is finite."""


@dataclass(frozen=True, slots=True)
class LogarithmsOfPowers(NodePass):
    """Rewrite ``log(x * x + y * y + e)`` and ``sqrt(x * x + y * y)`` by the logarithms of the squares. keep: calls to leave alone."""

    keep: Callable[[Node], bool] | None = None

    targets = (*_LOGARITHMS, _aten.sqrt.default)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        if self.keep is not None and self.keep(node):
            return False
        found = _squares_behind(module, node.args[0])
        if found is None:
            return False
        sources, added, least = found
        values = [source.meta.get("val") for source in sources]
        if not all(isinstance(value, FakeTensor) and value.dtype == torch.float32 for value in values):
            return False

        def function(x: Tensor, y: Tensor) -> Tensor:
            half = max(added, LEAST_POWER) / 2
            a, b = (torch.log(item * item + half) for item in (x, y))
            power = torch.maximum(a, b) + torch.log1p(torch.exp(-torch.abs(a - b)))
            if least > 0:
                power = power.clamp(min=math.log(least))
            return torch.exp(power * 0.5) if node.target is _aten.sqrt.default else power * _LOGARITHMS[node.target]

        with torch.no_grad(), values[0].fake_mode:
            traced = make_fx(function, pre_dispatch=True)(*values)
        splice(module, node, traced, sources)
        return True


@dataclass(frozen=True, slots=True)
class SignedSizes(NodePass):
    """Rewrite ``sign(x) * relu(abs(x))``, as PyTorch's power-average pools have it, as x."""

    targets = (_aten.mul.Tensor,)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        for sign, size in (node.args, node.args[::-1]):
            if not isinstance(sign, Node) or not isinstance(size, Node) or sign.target is not _aten.sign.default:
                continue
            inner = size.args[0] if size.target is _aten.relu.default else size
            if isinstance(inner, Node) and inner.target is _aten.abs.default and inner.args == sign.args:
                node.replace_all_uses_with(sign.args[0])
                return True
        return False


def _squares_behind(module: GraphModule, node: object) -> tuple[list[Node], float, float] | None:
    """Return what is squared in a sum of two squares, the number that is added to it, and its lower end; None for other nodes."""
    added, least = 0.0, 0.0
    while isinstance(node, Node) and len(node.users) == 1 and len(node.args) == 2:
        if node.target in _ENDS and not node.kwargs:
            end = node.args[1]
            if least or not isinstance(end, (int, float)):
                return None
            node, least = node.args[0], float(end)
            continue
        if node.target not in _SUMS or node.kwargs:
            return None
        number = _number(module, node.args[1])
        if number is not None:
            if number < 0 or added:
                return None
            node, added = node.args[0], number
            continue
        sources = [_squared(module, item) for item in node.args]
        known = [source for source in sources if source is not None]
        return (known, added, least) if len(known) == 2 and known[0] is not known[1] else None
    return None


def _number(module: GraphModule, item: object) -> float | None:
    if isinstance(item, (int, float)):
        return float(item)
    known = constant_of(module, item)
    return float(known) if known is not None and known.numel() == 1 else None


def _squared(module: GraphModule, node: object) -> Node | None:
    """Return the operand of a square that nothing else reads; None for other nodes."""
    if not isinstance(node, Node) or node.op != "call_function" or len(node.users) != 1:
        return None
    if (
        (node.target is _aten.mul.Tensor and node.args[0] is node.args[1])
        or node.target is _aten.square.default
        or (node.target in (_aten.pow.Tensor_Scalar, _aten.pow.Tensor_Tensor) and _number(module, node.args[1]) == 2)
    ):
        source = node.args[0]
    else:
        return None
    return source if isinstance(source, Node) else None
