# SPDX-License-Identifier: BSD-3-Clause
"""The quantization that a node's float result ends in, and the clamp behind the node that runs inside it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from torch.fx import Node

from openneutron.ir import QuantParams
from openneutron.pytorch.graph.program import (
    GETITEM,
    Constants,
    activation_params,
    is_compute,
    is_dequantize,
    is_quantize,
    op_name,
    quant_params,
    short_name,
)
from openneutron.pytorch.graph.reject import QUANTIZE_FIRST, Rejected
from openneutron.pytorch.operators.rules.lowering import LOWER_RULES


def is_clamp(node: Node) -> bool:
    return op_name(node) in ACTIVATIONS


def is_fused_clamp(node: Node) -> bool:
    """Return whether a node is one of the clamps that LiteRT's operators can end with."""
    try:
        return is_clamp(node) and clamp_bounds(node) in FUSED.values()
    except Rejected:
        return False


def clamp_bounds(node: Node) -> Bounds:
    """Return what a clamping node clamps to. Rejects bounds that are tensors."""
    defaults = ACTIVATIONS[op_name(node)]
    names = ("min_val", "max_val") if op_name(node).startswith("aten.hardtanh") else ("min", "max")
    found: list[float | None] = []
    for place, (name, default) in enumerate(zip(names, defaults, strict=True), start=1):
        bound = node.args[place] if place < len(node.args) else node.kwargs.get(name, default)
        if bound is not None and not isinstance(bound, (int, float)):
            raise Rejected("its bounds are computed at run time")
        found.append(None if bound is None else float(bound))
    return Bounds(*found)


def moves(node: Node) -> bool:
    """Return whether the node only moves values."""
    name = op_name(node)
    return name == GETITEM or (name in LOWER_RULES and LOWER_RULES[name].moves)


class Results:
    """Looks ahead from a node to the quantize nodes its result ends in."""

    def __init__(self, constants: Constants) -> None:
        self._constants = constants

    def quant(self, node: Node) -> QuantParams:
        """Return the quantization of a node's result: that of the quantize nodes behind it, or behind what moves it on;
        where there are none, a node that only moves values has its input's."""
        found = self._ahead(node)
        if found is None and moves(node):
            found = self._behind(node)
        if found is None:
            raise Rejected(self._why_float(node), QUANTIZE_FIRST)
        return found

    def is_quantized(self, node: Node) -> bool:
        """Return whether the node's result is quantized before anything computes with it."""
        return self._ahead(node) is not None

    def fused(self, node: Node) -> Node | None:
        """Return the clamp that runs inside ``node``: its only user, of a node that can take one."""
        rule = LOWER_RULES.get(op_name(node))
        if rule is None or not rule.fuses or len(node.users) != 1:
            return None
        user = next(iter(node.users))
        return user if is_clamp(user) else None

    def bounds(self, node: Node) -> Bounds:
        """Return what the clamp inside ``node`` clamps to."""
        clamp = self.fused(node)
        return UNBOUNDED if clamp is None else clamp_bounds(clamp)

    def _ahead(self, node: Node) -> QuantParams | None:
        clamp = self.fused(node)
        if clamp is not None:
            return self._ahead(clamp)
        found: QuantParams | None = None
        for user in node.users:
            if is_quantize(user):
                quant = activation_params(user, self._constants)
            elif moves(user):
                further = self._ahead(user)
                if further is None:
                    return None
                quant = further
            else:
                return None
            if found is not None and quant != found:
                raise Rejected(f"its result is quantized in two ways, {found} and {quant}")
            found = quant
        return found

    def _behind(self, node: Node) -> QuantParams | None:
        while moves(node):
            source = node.args[0]
            if isinstance(source, (list, tuple)):
                source = source[0]
            if not isinstance(source, Node):
                return None
            node = source
        return quant_params(node, self._constants) if is_dequantize(node) else None

    def _why_float(self, node: Node) -> str:
        for user in node.users:
            if is_compute(user):
                return f"{short_name(user)} '{user.name}' reads its result before it is quantized"
            if user.op == "output":
                return "its result leaves the model before it is quantized"
        return "its result is not quantized"


INT8_MIN, INT8_MAX = -128, 127


@dataclass(frozen=True, slots=True)
class Bounds:
    """Real numbers between which values are clamped; None is no bound."""

    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        low = "-inf" if self.low is None else f"{self.low:g}"
        return f"[{low}, {'inf' if self.high is None else f'{self.high:g}'}]"


UNBOUNDED = Bounds()

FUSED = {"NONE": UNBOUNDED, "RELU": Bounds(0.0), "RELU6": Bounds(0.0, 6.0), "RELU_N1_TO_1": Bounds(-1.0, 1.0)}
"""LiteRT's fused activations."""

ALONE = {
    "relu": Bounds(0.0),
    "relu6": Bounds(0.0, 6.0),
    "relu_n1_to_1": Bounds(-1.0, 1.0),
    "relu_0_to_1": Bounds(0.0, 1.0),
}
"""LiteRT's clamping operators."""


SATURATING = 2.0**16
"""Steps that saturate int8 from every zero point."""

ACTIVATIONS: Mapping[str, tuple[float | None, float | None]] = MappingProxyType(
    {
        "aten.relu.default": (0.0, None),
        "aten.relu6.default": (0.0, 6.0),
        "aten.hardtanh.default": (-1.0, 1.0),
        "aten.clamp.default": (None, None),
        "aten.clamp_min.default": (None, None),
    }
)
"""Operators that only clamp, with their bounds where arguments 1 and 2 don't say others. They can run inside the operator
before them."""


def stored_bounds(bounds: Bounds, quant: QuantParams) -> tuple[int, int]:
    """Return the bounds as int8, as LiteRT computes them: zero point + round(bound / scale), half away from zero,
    saturated."""

    def stored(real: float | None, absent: int) -> int:
        if real is None or math.isinf(real):
            return absent
        with np.errstate(over="ignore"):
            steps = float(np.float32(real) / np.float32(quant.scale))
        steps = min(SATURATING, max(-SATURATING, steps))
        away = math.copysign(math.floor(abs(steps) + 0.5), steps)
        return int(min(INT8_MAX, max(INT8_MIN, quant.zero_point + away)))

    return stored(bounds.low, INT8_MIN), stored(bounds.high, INT8_MAX)


def fused_activation(bounds: Bounds, quant: QuantParams) -> str | None:
    """Return the fused activation that clamps results of these parameters to ``bounds``, the plainest first, or
    None."""
    wanted = stored_bounds(bounds, quant)
    return next((name for name, own in FUSED.items() if stored_bounds(own, quant) == wanted), None)


def clamp_operator(bounds: Bounds, quant: QuantParams) -> str | None:
    """Return the operator that clamps to ``bounds`` with results of these parameters; ``""`` where no value is
    clamped."""
    wanted = stored_bounds(bounds, quant)
    if wanted == (INT8_MIN, INT8_MAX):
        return ""
    return next((name for name, own in ALONE.items() if stored_bounds(own, quant) == wanted), None)
