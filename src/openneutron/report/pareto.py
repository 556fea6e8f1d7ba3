# SPDX-License-Identifier: BSD-3-Clause
"""Memory against modelled time as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from openneutron.compiler.search.pareto import Point
from openneutron.report.units import duration_text, size_text
from openneutron.targets import Target

BAR_WIDTH = 24


def pareto_table(name: str, points: Sequence[Point], target: Target) -> RenderableType:
    """Return a row for each point: memory, time, the budget in whole KiB that it fits, and a bar as long as the time
    against the slowest. Memory is rounded up, so that none seems to fit a budget that it does not."""
    title = Text(f"{name}: SRAM against modelled time on {target.name}", "bold")
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for heading in ("SRAM", "time", "times the fastest", "--sram-budget"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    slowest, fastest = max(point.cycles for point in points), min(point.cycles for point in points)
    for point in points:
        bar = "#" * max(1, round(BAR_WIDTH * point.cycles / slowest))
        time = duration_text(target.milliseconds(point.cycles))
        memory = size_text(-(-point.sram_bytes * 10 // 1024) * 1024 // 10)
        table.add_row(memory, time, f"{point.cycles / fastest:.2f}", str(budget_kib(point)), bar)
    return Group(title, table)


def budget_kib(point: Point) -> int:
    """Return the smallest --sram-budget that the point fits."""
    return -(-point.sram_bytes // 1024)
