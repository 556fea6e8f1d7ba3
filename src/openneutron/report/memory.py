# SPDX-License-Identifier: BSD-3-Clause
"""The arena's memory map as a table: the address and the live range of each buffer."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from openneutron.compiler import Report
from openneutron.report.fitted import Column, FittedTable
from openneutron.report.summary import PartitionSummary
from openneutron.report.text import size_text

CHART_WIDTH = 32


def memory_table(part: PartitionSummary) -> RenderableType:
    """Return buffers by address, each with the steps it is live in: ``.`` is before or after, ``#`` is live."""
    report = part.report
    steps = max((item.last for item in report.memory), default=0) + 1
    title = Text(f"{part.name}: arena of {size_text(report.arena_bytes)}, {placement_text(report)}", "bold")
    buffers = sorted(report.memory, key=lambda item: (item.offset, item.first))
    lives = [(max(item.first, 0), item.last) for item in buffers]
    columns = [
        Column("address", [f"0x{item.offset:06x}" for item in buffers], style="cyan"),
        Column("bytes", [f"{item.size_bytes:,}" for item in buffers], justify="right"),
        Column("steps", [f"{first}-{last}" for first, last in lives], goes=1, justify="right"),
        Column(f"0 to {steps - 1}", [_bar(first, last, steps) for first, last in lives]),
    ]
    return Group(title, FittedTable("buffer", [part.title(item.name) for item in buffers], columns, at=2))


def placement_text(report: Report) -> str:
    """Return the quality of the placement in words."""
    if report.arena_bytes == report.bound_bytes:
        return "the least these buffers can take"
    return f"{size_text(report.arena_bytes - report.bound_bytes)} above the bound of {size_text(report.bound_bytes)}"


def _bar(first: int, last: int, steps: int) -> str:
    width = min(steps, CHART_WIDTH)
    start, stop = first * width // steps, last * width // steps
    return "." * start + "#" * (stop - start + 1) + "." * (width - stop - 1)
