# SPDX-License-Identifier: BSD-3-Clause
"""The memory of a partition: buffers of tensors, tiles and copied constants, with addresses and live ranges."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from openneutron.compiler import Report
from openneutron.features.report.fitted import Column, FittedTable
from openneutron.features.report.summary import PartitionSummary
from openneutron.features.report.units import size_text

CHART_WIDTH = 32
"""The columns of the chart of live ranges."""

_TILE = re.compile(r"(.+)([<>])[\d ]*")
"""The name of a tile's buffer (compiler/search/tiles/streams.py): that of its tensor, and ``<`` for a load or ``>`` for a store."""


@dataclass(frozen=True, slots=True)
class MappedBuffer:
    """A piece of memory: addresses ``offset`` to ``offset + size_bytes``, live in steps ``first`` to ``last``. Outputs are live behind the
    last step.

    ``is_constant``: the piece holds copied constants of the kernel call ``title``. A rolling buffer holds ``rows_held`` of the ``rows`` of
    its tensor; both are 0 for other buffers.
    """

    title: str
    offset: int
    size_bytes: int
    first: int
    last: int
    rows_held: int = 0
    rows: int = 0
    is_constant: bool = False


def mapped_buffers(part: PartitionSummary) -> Iterator[MappedBuffer]:
    """Yield the buffers of a partition: first those of tensors and tiles, then copied constants from their copy to their last use."""
    steps = part.report.steps
    for item in part.report.memory:
        live = max(item.first, 0), item.last
        yield MappedBuffer(_title(part, item.name), item.offset, item.size_bytes, *live, item.rows_held, item.rows)
    for place, step in enumerate(steps):
        if step.size_bytes:
            (call,) = step.calls
            readers = (
                later
                for later, other in enumerate(steps)
                if later > place and call in other.calls and not other.size_bytes
            )
            title = part.title(part.report.operators[call].name)
            yield MappedBuffer(
                title, step.offset, step.size_bytes, place, max(readers, default=place), is_constant=True
            )


def _title(part: PartitionSummary, name: str) -> str:
    found = _TILE.fullmatch(name) if part.report.moved_bytes else None
    return part.title(name) if found is None else f"{part.title(found[1])} ({'load' if found[2] == '<' else 'store'})"


def memory_table(part: PartitionSummary) -> RenderableType:
    """Return buffers by address, each with the steps it is live in: ``.`` is before or after, ``#`` is live."""
    report = part.report
    buffers = sorted(mapped_buffers(part), key=lambda item: (item.offset, item.first))
    steps = max((item.last for item in report.memory), default=0) + 1
    title = Text(f"{part.heading}: arena of {size_text(report.arena_bytes)}, {_placement(report)}", "bold")
    lives = [(item.first, item.last) for item in buffers]
    columns = [
        Column("address", [f"0x{item.offset:06x}" for item in buffers], style="cyan"),
        Column("bytes", [f"{item.size_bytes:,}" for item in buffers], justify="right"),
        Column("steps", [f"{first}-{last}" for first, last in lives], goes=1, justify="right"),
        Column(f"0 to {steps - 1}", [_bar(first, last, steps) for first, last in lives]),
    ]
    names = [f"{item.title} (constants)" if item.is_constant else item.title for item in buffers]
    return Group(title, FittedTable("buffer", names, columns, at=2))


def _placement(report: Report) -> str:
    """Return the quality of the placement in words."""
    if report.arena_bytes == report.bound_bytes:
        return "the lower bound of these buffers"
    above = f"{size_text(report.arena_bytes - report.bound_bytes)} above"
    if report.fetched_bytes:
        return f"{above} the lower bound of {size_text(report.bound_bytes)} without constants"
    return f"{above} the bound of {size_text(report.bound_bytes)}"


def _bar(first: int, last: int, steps: int) -> str:
    width = min(steps, CHART_WIDTH)
    start, stop = first * width // steps, last * width // steps
    return "." * start + "#" * (stop - start + 1) + "." * (width - stop - 1)
