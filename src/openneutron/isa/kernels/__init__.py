# SPDX-License-Identifier: BSD-3-Clause
"""The rows of all kernels: their ids, parameter blocks, variants and traits."""

from __future__ import annotations

from openneutron.isa.kernels import combined, elements, language, products, recurrent, regions
from openneutron.isa.kernels.row import Row

_FAMILIES = (products, elements, regions, combined, recurrent, language)

# Ids are the opCode of profile events; 6 stays free, since ExecuTorch's NXP delegate takes it for the end of its events.
KERNELS: tuple[Row, ...] = tuple(
    sorted((row for family in _FAMILIES for row in family.KERNELS), key=lambda row: row.code)
)
