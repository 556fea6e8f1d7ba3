# SPDX-License-Identifier: BSD-3-Clause
"""Decompositions of composite ATen operators, as plain torch functions: one per operator, in the folder of its family."""

from openneutron.pytorch.operators.families import modules
from openneutron.pytorch.operators.rules.tables import DECOMPOSITIONS

modules("decompose")

__all__ = ["DECOMPOSITIONS"]
