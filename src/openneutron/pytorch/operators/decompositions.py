# SPDX-License-Identifier: BSD-3-Clause
"""Decompositions of composite ATen operators, as plain torch functions: one per operator, in the folder of its family."""

from openneutron.pytorch.operators.decomposition import DECOMPOSITIONS, KEPT, Keep, decomposes
from openneutron.pytorch.operators.families import modules

modules("decompose")

__all__ = ["DECOMPOSITIONS", "KEPT", "Keep", "decomposes"]
