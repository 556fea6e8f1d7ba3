# SPDX-License-Identifier: BSD-3-Clause
"""Edge dialect programs to graphs with LiteRT's semantics."""

from openneutron.pytorch.graph.program import Constants
from openneutron.pytorch.lower.lower import Border, Lowered, Lowering, Refusal, lower_units
from openneutron.pytorch.lower.units import Unit, find_units
from openneutron.pytorch.operators.lowering.rules import LOWER_RULES, LowerRule, Reject, lowers

__all__ = [
    "LOWER_RULES",
    "Border",
    "Constants",
    "LowerRule",
    "Lowered",
    "Lowering",
    "Refusal",
    "Reject",
    "Unit",
    "find_units",
    "lower_units",
    "lowers",
]
