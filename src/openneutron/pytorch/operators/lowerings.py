# SPDX-License-Identifier: BSD-3-Clause
"""Lowering of edge operators: one rule per operator, in the folder of its family."""

from openneutron.pytorch.operators.families import modules
from openneutron.pytorch.operators.rules.tables import LOWER_RULES

modules("lower")

__all__ = ["LOWER_RULES"]
