# SPDX-License-Identifier: BSD-3-Clause
"""The rules of kernel selection: one for each operator, in the file of its family."""

from openneutron.compiler.select.rules import (
    comparison,
    conv,
    data_movement,
    elementwise,
    indexed,
    lookup,
    matmul,
    pool,
    softmax,
    transposed,
)

FAMILIES = (comparison, conv, data_movement, elementwise, indexed, lookup, matmul, pool, softmax, transposed)
