# SPDX-License-Identifier: BSD-3-Clause
"""Kernels that take elements from other places: pads, resizes, positions."""

from __future__ import annotations

from openneutron.isa.kernels.row import INPUT_AND_OUTPUT, Packing, Row, buffer, signed, unsigned
from openneutron.isa.kernels.traits import (
    INT8,
    POSITIONS,
    CostClass,
    Mapped,
    Operand,
    Padded,
    Result,
    SameRow,
    Traits,
    Work,
)

_MAPS = (("map", Packing.MAPS),)

KERNELS = (
    Row(
        "pad_s8",
        "The input with a constant around it.",
        (
            *INPUT_AND_OUTPUT,
            signed("pad_batch", "batches before the first"),
            signed("pad_top", "rows before the first"),
            signed("pad_left", "columns before the first"),
            signed("pad_channel", "channels before the first"),
            signed("value", "stored value of the padding"),
        ),
        9,
        traits=Traits(
            operands=(Operand("input", Padded(), INT8),),
            results=(Result(elements=INT8),),
            cost=Work(CostClass.MOVED),
            exchanged=(Padded().pad,),
            batches_apart=True,
        ),
    ),
    Row(
        "resize_nearest_neighbor_s8",
        "Each output row and column copies the input row and column that the maps name.",
        (
            *INPUT_AND_OUTPUT,
            unsigned("map_base", "see bases"),
            unsigned(
                "map_offset", "bytes; int32 input row of each output row, then int32 input column of each output column"
            ),
        ),
        13,
        traits=Traits(
            operands=(Operand("input", Mapped("map")),), cost=Work(CostClass.MOVED), exchanged=(), batches_apart=True
        ),
        packings=_MAPS,
    ),
    Row(
        "resize_bilinear_s8",
        "Each output element is a mean of four elements, weighted by 10 bits for rows and 10 for columns.",
        (
            *INPUT_AND_OUTPUT,
            unsigned("map_base", "see bases"),
            unsigned(
                "map_offset",
                "bytes, a multiple of 4; int32 for each output row its first input row, then for each its second one, then "
                "for each the second's weight in 1/1024, then the same for columns",
            ),
        ),
        18,
        traits=Traits(
            operands=(Operand("input", Mapped("map", maps=2), INT8),),
            results=(Result(elements=INT8),),
            cost=Work(CostClass.PER_OUTPUT, steps=4),
            exchanged=(),
            batches_apart=True,
        ),
        packings=_MAPS,
    ),
    Row(
        "gather_s8",
        "Column c of the output is the input's column that index c of the batch names (LiteRT GATHER). An index below 0 counts "
        "from the end; one that names no column ends the run with an error.",
        (
            buffer("input", "int8"),
            buffer(
                "indices", "little-endian, signed: a column each, a channel for each of its bytes (4 or 8); row 0 alone"
            ),
            buffer("output", "int8"),
        ),
        26,
        traits=Traits(
            operands=(Operand("input", SameRow()), Operand("indices", elements=POSITIONS)),
            cost=Work(CostClass.MOVED),
            batches_apart=True,
        ),
    ),
)
