# SPDX-License-Identifier: BSD-3-Clause
"""The annotation rules: one row per operator, in the folder of its family."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from openneutron.pytorch.operators.families import modules
from openneutron.pytorch.operators.rules.annotation import AnnotationRule


@cache
def annotation_rules() -> Mapping[str, AnnotationRule]:
    """Return the rules of all families by operator (``aten.relu.default``)."""
    rules: dict[str, AnnotationRule] = {}
    for family in modules("quantize"):
        twice = rules.keys() & family.RULES.keys()
        assert not twice, f"two annotation rules for {sorted(twice)}"
        rules |= family.RULES
    return MappingProxyType(rules)
