# SPDX-License-Identifier: BSD-3-Clause
"""Sizes, counts and durations as text, and tables as values with writers for a terminal, HTML, Markdown and JSON.

A narrow terminal shows shortened names first. If these do not suffice, columns are dropped and listed below the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import floor, log10
from typing import Any, Self

from rich import table as rich_table
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.padding import Padding
from rich.text import Text


def size_text(size: int) -> str:
    """Return a size in bytes, KiB or MiB."""
    if size < 1024:
        return f"{size} B"
    return f"{size / 1024:,.1f} KiB" if size < 1 << 20 else f"{size / (1 << 20):,.2f} MiB"


def count_text(count: int) -> str:
    """Return a count in units of a thousand (k), a million (M) or a billion (G)."""
    for letter, unit in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= unit:
            return f"{count / unit:,.1f} {letter}"
    return str(count)


def number_text(value: float) -> str:
    """Return a number with three digits and without an exponent, or as a whole number from 100 on."""
    if value >= 99.95 or value <= 0:
        return f"{value:,.0f}"
    return f"{value:.{2 - floor(log10(value))}f}"


def plural(count: int, what: str) -> str:
    """Return a count with its noun, for instance ``1 partition`` and ``2 partitions``."""
    return f"{count} {what}" if count == 1 else f"{count:,} {what}s"


def range_text(milliseconds: float, least: float, most: float) -> str:
    """Return a duration with its range in the same unit, such as ``21.80 ms (19 to 27)``. Bounds below 10 have two
    significant digits; larger ones are whole numbers."""
    scale = 1.0 if milliseconds >= 0.9995 else 1e3
    low, high = (_two_digits(scale * bound) for bound in (least, most))
    return f"{duration_text(milliseconds)} ({low} to {high})" if milliseconds else duration_text(milliseconds)


def _two_digits(value: float) -> str:
    """Return a number with two digits, or as a whole number from 10 on."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.995 else f"{value:.2f}"


def duration_text(milliseconds: float) -> str:
    """Return a duration in milliseconds, or in microseconds if it is shorter than 1 ms. Less than 10 us have one
    decimal."""
    if milliseconds >= 0.9995:  # below this a microsecond more or less is seen
        return f"{milliseconds:,.2f} ms"
    microseconds = milliseconds * 1e3
    return f"{microseconds:,.1f} us" if 0 < microseconds < 9.95 else f"{microseconds:,.0f} us"


NAME_WIDTH = 44
"""The number of characters of a tensor's name that a table shows."""

LEAST_NAME_WIDTH = 12

Cell = str | int | float | Text | None
"""The value of a cell: a text, which may have a style on terminals, a number, or None for an empty cell."""

_CELL = "text-align:left;vertical-align:top;padding:0.15em 0.8em 0.15em 0;border:none;background:none;color:inherit"
_INLINE = {"th": _CELL, "td": _CELL, "head": f"{_CELL};border-bottom:1px solid currentColor", "tr": "background:none"}
"""The CSS of HTML elements in a notebook, by tag. Colours are those of the notebook."""


def short_name(name: str, width: int = NAME_WIDTH) -> str:
    """Return a tensor's name in at most ``width`` characters. Of names that a converter joined with ``;`` only the
    last one is shown. The front of a longer name is cut."""
    name = name.rsplit(";", 1)[-1]
    return name if len(name) <= width else f"...{name[3 - width :]}"


def escaped(text: str) -> str:
    """Return a text with the special characters of HTML escaped."""
    from html import escape  # here, since a compile does without: its tables of entities take time to import

    return escape(text)


def cell_text(value: Any) -> str:
    """Return the text of a cell. Integers have commas between thousands, floats six significant digits."""
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value is None else f"{value:,.6g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, the values of its cells, and the function ``text`` that formats a value.

    ``key`` is the column's name in JSON; a column with an empty key is not in JSON. ``is_shown`` is False for columns
    that only JSON has. ``names`` is True for the column with the names of tensors. On a terminal a name has at most
    NAME_WIDTH characters, and fewer if the table is too wide. If shorter names do not suffice, columns are dropped,
    the one with the largest ``goes`` first. A column whose ``goes`` is 0 stays. ``wraps`` allows several lines in a
    cell. ``most`` is the largest width of the column in characters; None: no limit.
    """

    heading: str = ""
    cells: Sequence[Cell] = ()
    goes: int = 0
    justify: JustifyMethod = "left"
    style: str = ""
    key: str = ""
    text: Callable[[Any], str] = cell_text
    is_shown: bool = True
    names: bool = False
    wraps: bool = False
    most: int | None = None

    @property
    def texts(self) -> list[str]:
        """Return the texts of the cells."""
        return ["" if value is None else self.text(value) for value in self.cells]

    @property
    def width(self) -> int:
        return max(len(text) for text in (self.heading, *self.texts))

    @property
    def is_number(self) -> bool:
        """Return whether all cells are numbers or empty."""
        return all(value is None or value == "" or isinstance(value, (int, float)) for value in self.cells)


def right(heading: str, cells: Sequence[Cell] = (), **more: Any) -> Column:
    """Return a column that is aligned to the right, as numbers are."""
    return Column(heading, cells, justify="right", **more)


@dataclass(frozen=True, slots=True)
class Table:
    """Columns with the same number of cells. On a terminal there are ``gap`` blanks between two columns and
    ``indent`` blanks before the first.

    >>> table = Table((Column("name", ("a", "b"), key="name"), right("bytes", (1024, None), key="size_bytes")))
    >>> print(table.markdown())
    | name | bytes |
    | --- | --- |
    | a | 1,024 |
    | b |  |
    <BLANKLINE>
    >>> table.to_json()
    [{'name': 'a', 'size_bytes': 1024}, {'name': 'b', 'size_bytes': None}]
    """

    columns: tuple[Column, ...]
    gap: int = 2
    has_headings: bool = True
    indent: int = 0

    @classmethod
    def of_rows(cls, columns: Iterable[Column | str], rows: Iterable[Sequence[Cell]], **more: Any) -> Self:
        """Return a table with these rows. The cells of a row are in the order of the columns. A column may be given as only its heading."""
        made = [Column(column) if isinstance(column, str) else column for column in columns]
        cells: Iterable[Sequence[Cell]] = zip(*rows, strict=True)
        known = list(cells) or [()] * len(made)
        return cls(tuple(replace(column, cells=each) for column, each in zip(made, known, strict=True)), **more)

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        """Return the values of each row."""
        return list(zip(*(column.cells for column in self.columns), strict=True))

    @property
    def headings(self) -> tuple[str, ...]:
        return tuple(column.heading for column in self.columns)

    def to_json(self) -> list[dict[str, Any]]:
        """Return an object for each row, with the values of the columns that have a key."""
        keyed = [column for column in self.columns if column.key]
        cells = zip(*(column.cells for column in keyed), strict=True)
        return [dict(zip((column.key for column in keyed), row, strict=True)) for row in cells]

    def markdown(self) -> str:
        """Return the table in GitHub's Markdown."""
        shown = [column for column in self.columns if column.is_shown]
        lines = [[column.heading for column in shown], ["---"] * len(shown)]
        lines += [
            [cell.replace("|", "\\|") for cell in row] for row in zip(*(column.texts for column in shown), strict=True)
        ]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def html(self, caption: str = "", for_notebook: bool = False) -> str:
        """Return the table as HTML. With ``for_notebook`` each element has its own style. In a table without headings
        the first cell of each row is its heading."""

        def element(tag: str, text: str, kind: str, attributes: str = "") -> str:
            style = f' style="{_INLINE[kind]}"' if for_notebook else ""
            return f"<{tag}{attributes}{style}>{text}</{tag}>"

        shown = [column for column in self.columns if column.is_shown]
        classes = [' class="number"' if column.is_number and not for_notebook else "" for column in shown]
        heads = (
            element("th", escaped(column.heading), "head", f' scope="col"{kind}')
            for column, kind in zip(shown, classes, strict=True)
        )
        rows = (
            element(
                "tr",
                "".join(
                    element("th", escaped(text), "th", ' scope="row"')
                    if not place and not self.has_headings
                    else element("td", escaped(text), "td", classes[place])
                    for place, text in enumerate(row)
                ),
                "tr",
            )
            for row in zip(*(column.texts for column in shown), strict=True)
        )
        title = f"<caption>{escaped(caption)}</caption>" if caption else ""
        head = f"<thead><tr>{''.join(heads)}</tr></thead>" if self.has_headings else ""
        style = ' style="border-collapse:collapse"' if for_notebook else ""
        return f"<table{style}>{title}{head}<tbody>{''.join(rows)}</tbody></table>"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = [column for column in self.columns if column.is_shown]
        kept = self._fitted(shown, options.max_width)
        table = rich_table.Table(
            box=None, pad_edge=False, padding=(0, self.gap // 2, 0, -(-self.gap // 2)), show_header=self.has_headings
        )
        for column in kept:
            table.add_column(
                column.heading,
                justify=column.justify,
                style=column.style,
                no_wrap=not column.wraps,
                overflow="fold" if column.wraps else "ellipsis",
                max_width=column.most,
            )
        styled = (
            [cell if isinstance(cell, Text) else text for cell, text in zip(column.cells, column.texts, strict=True)]
            for column in kept
        )
        for row in zip(*styled, strict=True):
            table.add_row(*row)
        yield Padding(table, (0, 0, 0, self.indent))
        there = {column.heading for column in kept}
        gone = [column.heading for column in shown if column.heading not in there]
        if gone:
            yield Text(
                f"Too wide for this terminal: {', '.join(gone)}. A wider terminal, a file and --json show all columns."
            )

    def _fitted(self, columns: list[Column], width: int) -> list[Column]:
        """Return the columns that fit ``width`` characters, with names shortened as far as needed. Without a column
        of names, all columns are returned as they are."""
        names = next((column for column in columns if column.names), None)
        if names is None:
            return columns
        longest = max((len(short_name(name)) for name in names.texts), default=0)
        least = max(len(names.heading), min(LEAST_NAME_WIDTH, longest))
        kept = list(columns)

        def room() -> int:
            return width - sum(column.width + self.gap for column in kept if column is not names)

        while room() < least and any(column.goes for column in kept):
            kept.remove(max(kept, key=lambda column: column.goes))
        short = [short_name(name, min(max(room(), least), NAME_WIDTH)) for name in names.texts]
        kept[kept.index(names)] = replace(names, cells=short)
        return kept


def facts(rows: Iterable[tuple[str, str]]) -> Table:
    """Return a table of labels and values without headings, indented below a title."""
    return Table.of_rows((Column(style="cyan"), Column(wraps=True)), rows, has_headings=False, indent=2)
