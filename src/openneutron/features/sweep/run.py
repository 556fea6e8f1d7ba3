# SPDX-License-Identifier: BSD-3-Clause
"""The points of a sweep, one after the other: each is compiled once, by this process or by another one with the same table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from openneutron.device.timings import remark_on
from openneutron.errors import BudgetError, InvalidOptionError
from openneutron.features.sweep.grid import Point
from openneutron.features.sweep.table import FAILED, FINISHED, INFEASIBLE, Row, Table
from openneutron.options import CompileOptions, Progress, QuantizationOptions

STEP = "Sweeping"


class Program(Protocol):
    """A compiled model, which can be compiled again with other options of the compiler."""

    def recompile(self, **changes: Any) -> Any: ...


Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Compiling:
    """The work at a point.

    ``check`` raises InvalidOptionError for options that no model can be compiled with. ``compile`` returns the program of a quantization.
    ``figures`` returns the figures of a program, which is compiled with the quantization that the mapping has.
    """

    compile: Callable[[CompileOptions, QuantizationOptions], Program]
    figures: Callable[[Any, Mapping[str, Any]], Figures]
    quantization: QuantizationOptions
    check: Callable[[CompileOptions], None] = lambda _options: None


def run(points: Sequence[Point], table: Table, work: Compiling, progress: Progress) -> dict[str, Row]:
    """Compute the points that the table does not have, and return the rows of all of them by their keys.

    A point whose options contradict each other, or whose budget is too small or above the chip's memory, is a row with the reason. Points that another
    process computes are left to it. Raises what ``work`` raises; the points that are done stay in the table.
    """
    program: Program | None = None
    quantization: Mapping[str, Any] | None = None
    done: list[Mapping[str, Any]] = []
    for place, point in enumerate(points):
        progress(STEP, place, len(points))
        remark_on(progress, STEP, _best(done))
        if not table.claim(point.key):
            continue
        try:
            if point.quantization != quantization:
                program, quantization = None, point.quantization
            row, made = _row(point, program, work)
        except BaseException:
            table.release(point.key)
            raise
        program = program or made
        table.finish(point.key, row)
        done += [row.result] if row.state == FINISHED else []
    progress(STEP, len(points), len(points))
    rows = table.rows()
    return {point.key: rows[point.key] for point in points}


def _best(done: Sequence[Mapping[str, Any]]) -> str:
    """Return the best time and the least memory of the finished points; empty without any."""
    if not done:
        return ""
    fastest = min(figures["modelled_ms"] for figures in done)
    least = min(figures["sram_bytes"] for figures in done)
    return f"fastest {fastest:.3g} ms, least SRAM {-(-least // 1024)} KiB"


def _row(point: Point, program: Program | None, work: Compiling) -> tuple[Row, Program | None]:
    """Return the row of a point, and its program."""
    try:
        options = CompileOptions(**point.options)
        work.check(options)
        quantization = dataclasses.replace(work.quantization, **point.quantization)
    except InvalidOptionError as error:
        return Row(FAILED, {"error": str(error)}), None
    try:
        made = program.recompile(**options.to_dict()) if program is not None else work.compile(options, quantization)
    except BudgetError as error:
        return Row(INFEASIBLE, {"least_sram_bytes": error.least_bytes, "error": str(error)}), None
    return Row(FINISHED, work.figures(made, point.quantization)), made
