# SPDX-License-Identifier: BSD-3-Clause
"""How each ATen operator is quantized: one row per operator, in the folder of its family."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from openneutron.pytorch.operators.annotation import AnnotationRule, Result
from openneutron.pytorch.operators.elementwise.quantize import ACTIVATIONS
from openneutron.pytorch.operators.families import modules


def _merged() -> dict[str, AnnotationRule]:
    rules: dict[str, AnnotationRule] = {}
    for family in modules("quantize"):
        twice = rules.keys() & family.RULES.keys()
        assert not twice, f"two annotation rules for {sorted(twice)}"
        rules |= family.RULES
    return rules


RULES: Mapping[str, AnnotationRule] = MappingProxyType(_merged())

__all__ = ["ACTIVATIONS", "RULES", "AnnotationRule", "Result"]
