# SPDX-License-Identifier: BSD-3-Clause
"""Clamps (relu, relu6, hardtanh …) as ranges of stored values, and which LiteRT operator has the same range.

Quantization is monotone, so clamping real values and then quantizing is the same as quantizing and then clamping to the
quantized bounds. Two clamps are the same if those bounds are; a bound outside [-128, 127] is none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from openneutron.ir import QuantParams

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
    """The bounds as int8, as LiteRT computes them: zero point + round(bound / scale), half away from zero, saturated."""

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
    """The fused activation that clamps results of these parameters to ``bounds``, the plainest first; None: there is none."""
    wanted = stored_bounds(bounds, quant)
    return next((name for name, own in FUSED.items() if stored_bounds(own, quant) == wanted), None)


def clamp_operator(bounds: Bounds, quant: QuantParams) -> str | None:
    """The operator that clamps to ``bounds`` with results of these parameters; ``""`` where no value is clamped."""
    wanted = stored_bounds(bounds, quant)
    if wanted == (INT8_MIN, INT8_MAX):
        return ""
    return next((name for name, own in ALONE.items() if stored_bounds(own, quant) == wanted), None)
