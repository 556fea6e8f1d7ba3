# SPDX-License-Identifier: BSD-3-Clause
"""The arena's memory map as a table: where each buffer lies, and when it is live."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from openneutron.compiler import Report
from openneutron.report.summary import PartitionSummary
from openneutron.report.text import short_name, size_text

CHART_WIDTH = 32


def memory_table(part: PartitionSummary) -> RenderableType:
    """Buffers by address, each with the steps it is live in: ``.`` is before or after, ``#`` is live."""
    report = part.report
    steps = max((item.last for item in report.memory), default=0) + 1
    title = Text(f"{part.name}: arena of {size_text(report.arena_bytes)}, {placement_text(report)}", "bold")
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("address", no_wrap=True, style="cyan")
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("buffer", no_wrap=True)
    table.add_column("steps", justify="right", no_wrap=True)
    table.add_column(f"0 to {steps - 1}", no_wrap=True)
    for item in sorted(report.memory, key=lambda item: (item.offset, item.first)):
        first, last = max(item.first, 0), item.last
        table.add_row(
            f"0x{item.offset:06x}",
            f"{item.size_bytes:,}",
            short_name(item.name),
            f"{first}-{last}",
            _bar(first, last, steps),
        )
    return Group(title, table)


def placement_text(report: Report) -> str:
    """How good the placement is, in words."""
    if report.arena_bytes == report.bound_bytes:
        return "the least these buffers can take"
    return f"{size_text(report.arena_bytes - report.bound_bytes)} above the bound of {size_text(report.bound_bytes)}"


def _bar(first: int, last: int, steps: int) -> str:
    width = min(steps, CHART_WIDTH)
    start, stop = first * width // steps, last * width // steps
    return "." * start + "#" * (stop - start + 1) + "." * (width - stop - 1)
