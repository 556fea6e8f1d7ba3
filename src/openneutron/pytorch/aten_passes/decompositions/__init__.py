# SPDX-License-Identifier: BSD-3-Clause
"""What composite ATen operators are made of, as plain torch functions: one function per operator, in the file of its family."""

from openneutron.pytorch.aten_passes.decompositions import (
    attention,
    bags,
    choices,
    composites,
    elementwise,
    logarithms,
    matmul,
    movement,
    norms,
    pooling,
    recurrent,
    resize,
    scatter,
    variance,
    volumes,
)
from openneutron.pytorch.aten_passes.decompositions.table import DECOMPOSITIONS, KEPT, Keep, decomposes

FAMILIES = (
    attention,
    bags,
    choices,
    composites,
    elementwise,
    logarithms,
    matmul,
    movement,
    norms,
    pooling,
    recurrent,
    resize,
    scatter,
    variance,
    volumes,
)
"""The modules that hold the functions; importing them fills the table."""

__all__ = ["DECOMPOSITIONS", "KEPT", "Keep", "decomposes"]
