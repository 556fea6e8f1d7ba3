# SPDX-License-Identifier: BSD-3-Clause
"""The bounds of a fused activation: stored values, the lower one first. Everything else is refused before a run."""

from __future__ import annotations

import pytest

from openneutron.isa import base, rows
from openneutron.isa.kernels.row import CostClass, Row
from tests.support import programs
from tests.support.altered_programs import refusal


def _parts(row: Row) -> list[Row]:
    names = {part.kernel for part in row.traits.parts}
    return [other for other in rows.KERNELS if other.name in names]


KERNELS = [
    row
    for row in rows.KERNELS
    if any(field.name == "clamp_min" for field in row.fields)
    and all(part.traits.cost.kind not in (CostClass.ATTENTION, CostClass.JOB) for part in (row, *_parts(row)))
]
"""The kernels that clamp. Calls of attention and of jobs take more buffers than these programs have; the fuzzer mutates such calls."""
ONES = ("kernel", "stride", "dilation", "group")
WORDS = {"weights_base": base("WEIGHTS"), "requant_base": base("WEIGHTS"), "requant_offset": 64, "constant_channels": 1}
WORDS |= {"then_table_base": base("WEIGHTS"), "weight": 1}
ENDS = {1: (-128, 127), 2: (-(2**15), 2**15 - 1)}
"""The lowest and the highest stored value by the bytes of an element."""


def of_bounds(row: Row, low: int, high: int) -> str:
    """Return the driver's result for a program that calls the kernel on one element with these bounds."""
    words = {field.name: int(field.name.startswith(ONES)) for field in row.fields}
    words |= {name: value for name, value in WORDS.items() if name in words}
    words |= {"output": 1, "clamp_min": low, "clamp_max": high}
    return refusal(
        programs.program(
            inputs=(programs.binding("INPUT", 0, 2),),
            outputs=(programs.binding("OUTPUT", 0, 2),),
            buffers=(programs.dense("INPUT", 0, (1, 1, 1, 1)), programs.dense("OUTPUT", 0, (1, 1, 1, 1))),
            operators=(programs.kernel(row.name, **words),),
            code=(programs.call(0), programs.END),
        )
    )


@pytest.mark.parametrize("row", KERNELS, ids=lambda row: row.name)
def test_bounds_are_in_order(row: Row) -> None:
    least, most = ENDS[row.element_bytes("output")]
    for low, high in ((least, most), (least, least), (most, most), (5, 5), (-1, 0)):
        assert of_bounds(row, low, high) == "accepted", (low, high)
    outside = ((least - 1, most), (least, most + 1), (-(2**31), 2**31 - 1))
    for low, high in ((0, -1), (most, least), (6, 5), *outside, (200, 100)):
        assert of_bounds(row, low, high) == "CALL", (low, high)
