# SPDX-License-Identifier: BSD-3-Clause
"""The kernels' rows: their ids, parameter blocks, variants and traits."""

from __future__ import annotations

from openneutron.isa.kernels import (
    attention,
    attention_of_layers,
    chained,
    elements,
    excitation,
    joined,
    normalization,
    products,
    recurrent,
    regions,
    wide_elements,
    wide_products,
    wide_recurrent,
    wide_regions,
)
from openneutron.isa.kernels.row import Row

_FAMILIES = (
    *(
        products,
        attention,
        attention_of_layers,
        elements,
        regions,
        normalization,
        joined,
        chained,
        excitation,
        recurrent,
    ),
    *(wide_elements, wide_products, wide_regions, wide_recurrent),
)

# Ids are the opCode of profile events; 6 stays free, since ExecuTorch's NXP delegate takes it for the end of its events.
KERNELS: tuple[Row, ...] = tuple(
    sorted((row for family in _FAMILIES for row in family.KERNELS), key=lambda row: row.code)
)
