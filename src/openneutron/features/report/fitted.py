# SPDX-License-Identifier: BSD-3-Clause
"""Tables for narrow terminals: names are shortened, then columns are dropped and listed below the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

NAME_WIDTH = 44
"""Characters of a tensor's name that a table shows."""

LEAST_NAME_WIDTH = 12


def short_name(name: str, width: int = NAME_WIDTH) -> str:
    """Return a tensor's name that fits a column: the last of the names that a converter joined, cut from the front."""
    name = name.rsplit(";", 1)[-1]
    return name if len(name) <= width else f"...{name[3 - width :]}"


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading and cells. Columns are dropped in descending order of ``goes``; a column with 0 stays."""

    heading: str
    cells: Sequence[str]
    goes: int = 0
    justify: JustifyMethod = "left"
    style: str = ""

    @property
    def width(self) -> int:
        return max(len(text) for text in (self.heading, *self.cells))


def facts(rows: Iterable[tuple[str, str]]) -> RenderableType:
    """Return labels and their values, indented below a title."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in rows:
        table.add_row(label, Text(value))
    return Padding(table, (0, 0, 0, 2))


@dataclass(frozen=True, slots=True)
class FittedTable:
    """A table with one line for each row at any width. ``names`` are the rows' tensors, shortened where necessary.

    ``at`` is the position of their column, ``gap`` the number of blanks between two columns, which is even.
    """

    heading: str
    names: Sequence[str]
    columns: Sequence[Column]
    at: int = 0
    gap: int = 2

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        kept = list(self.columns)
        while self._room(kept, options.max_width) < self._least and any(column.goes for column in kept):
            kept.remove(max(kept, key=lambda column: column.goes))
        room = max(self._room(kept, options.max_width), self._least)
        table = Table(box=None, pad_edge=False, padding=(0, self.gap // 2))
        named = Column(self.heading, [short_name(name, min(room, NAME_WIDTH)) for name in self.names])
        shown = [*kept[: self.at], named, *kept[self.at :]]
        for column in shown:
            table.add_column(column.heading, justify=column.justify, style=column.style, no_wrap=True)
        for row in zip(*(column.cells for column in shown), strict=True):
            table.add_row(*row)
        yield table
        gone = [column.heading for column in self.columns if column not in kept]
        if gone:
            yield Text(
                f"Too wide for this terminal: {', '.join(gone)}. A wider terminal, a file and --json show all columns."
            )

    @property
    def _least(self) -> int:
        """Return the smallest width of the column of names."""
        longest = max((len(short_name(name)) for name in self.names), default=0)
        return max(len(self.heading), min(LEAST_NAME_WIDTH, longest))

    def _room(self, columns: Sequence[Column], width: int) -> int:
        return width - sum(column.width + self.gap for column in columns)
