# SPDX-License-Identifier: BSD-3-Clause
"""How each ATen operator is quantized: one row per operator, in the file of its family."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from openneutron.pytorch.quantizer.rules import (
    choices,
    convolution,
    elementwise,
    matmul,
    movement,
    pads,
    pooling,
    resize,
)
from openneutron.pytorch.quantizer.rules.elementwise import ACTIVATIONS
from openneutron.pytorch.quantizer.rules.table import AnnotationRule, Result

FAMILIES = (convolution, matmul, elementwise, pooling, resize, movement, pads, choices)


def _merged() -> dict[str, AnnotationRule]:
    rules: dict[str, AnnotationRule] = {}
    for family in FAMILIES:
        twice = rules.keys() & family.RULES.keys()
        assert not twice, f"two annotation rules for {sorted(twice)}"
        rules |= family.RULES
    return rules


RULES: Mapping[str, AnnotationRule] = MappingProxyType(_merged())

__all__ = ["ACTIVATIONS", "RULES", "AnnotationRule", "Result"]
