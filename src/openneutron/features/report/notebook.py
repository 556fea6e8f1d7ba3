# SPDX-License-Identifier: BSD-3-Clause
"""Summaries as HTML for notebooks: plain tables in the notebook's own colours, without a script."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Self

from openneutron.features.report.advice import Advice
from openneutron.features.report.summary import PartitionSummary, Summary, folded
from openneutron.features.report.text import SHOWN_ON_CPU, explanation, plain, summary_rows, summary_table
from openneutron.features.report.units import count_text

if TYPE_CHECKING:
    from openneutron.features.report.loaded import LoadedSummary

CELL = "text-align:left;vertical-align:top;padding:0.15em 0.8em 0.15em 0;border:none;background:none;color:inherit"
RULED = f"{CELL};border-bottom:1px solid currentColor"
CALLS = ("operator", "kernel", "output", "MACs", "cycles", "used", "bound by")
ON_CPU = ("operator", "name", "why")


class ShownText(str):
    """A text that a notebook shows as HTML."""

    __slots__ = ("html",)
    html: str

    def __new__(cls, text: str, html: str) -> Self:
        made = super().__new__(cls, text)
        made.html = html
        return made

    def _repr_html_(self) -> str:
        return self.html


class ShownModel:
    """The texts of a compiled model, for a terminal and for a notebook."""

    @property
    def report(self) -> Summary:
        """Return the figures of the compile as data."""
        raise NotImplementedError

    @property
    def quick_advice(self) -> tuple[Advice, ...]:
        """Return the advice that takes no search."""
        raise NotImplementedError

    def summary(self) -> str:
        """Return the figures as text; a notebook shows them as a table."""
        found = self.quick_advice
        return ShownText(plain(summary_table(self.report, advice=found)), summary_html(self.report, found))

    def explain(self) -> str:
        """Return the text of ``openneutron explain``: the figures, each kernel call with its modelled cost, and each operator on
        the CPU with the reason; a notebook shows them as tables."""
        found = self.quick_advice
        text = plain(explanation(self.report, memory=False, advice=found))
        return ShownText(text, explanation_html(self.report, found))

    def _repr_html_(self) -> str:
        return summary_html(self.report, self.quick_advice)


def loaded_text(summary: LoadedSummary) -> str:
    """Return the figures of a compiled file as text; a notebook shows them as a table."""
    from openneutron.features.report.loaded import loaded_table

    return ShownText(plain(loaded_table(summary)), loaded_html(summary))


def loaded_html(summary: LoadedSummary) -> str:
    """Return the figures of a compiled file as HTML."""
    from openneutron.features.report.loaded import loaded_rows

    return _page(_title(summary.file), _facts(loaded_rows(summary)))


def summary_html(summary: Summary, advice: Sequence[Advice] = ()) -> str:
    """Return the figures of a compile as HTML, with the first operators on the CPU."""
    return _page(*_head(summary, advice), *_on_cpu(summary, SHOWN_ON_CPU))


def explanation_html(summary: Summary, advice: Sequence[Advice] = ()) -> str:
    """Return the figures of a compile as HTML, with every kernel call and every operator on the CPU."""
    calls = (part for partition in summary.partitions for part in (_title(partition.heading), _calls(partition)))
    return _page(*_head(summary, advice), *calls, *_on_cpu(summary, None))


def _head(summary: Summary, advice: Sequence[Advice]) -> tuple[str, str]:
    title = _title(summary.model, f"for {summary.target.name} ({summary.target.title})")
    return title, _facts(summary_rows(summary, advice))


def _calls(part: PartitionSummary) -> str:
    rows = [
        (
            part.title(call.name),
            call.kernel,
            "x".join(map(str, call.output)),
            count_text(call.macs) if call.macs else "",
            f"{call.cycles:,}",
            f"{100 * call.utilisation:.1f} %" if call.macs else "",
            call.bottleneck,
        )
        for call in part.report.operators
    ]
    return _table(CALLS, rows)


def _on_cpu(summary: Summary, limit: int | None) -> list[str]:
    rows = folded(summary.on_cpu)
    if not rows:
        return []
    shown = rows[:limit]
    cells = [
        (row.title, row.items[0].name, f"{row.items[0].reason}. {row.items[0].suggestion}".strip()) for row in shown
    ]
    rest = sum(len(row.items) for row in rows[len(shown) :])
    more = [f"<div>... and {rest} more; explain() lists all.</div>"] if rest else []
    return [_title("On the CPU"), _table(ON_CPU, cells), *more]


def _escaped(text: str) -> str:
    from html import escape  # here, since a compile does without: its tables of entities take time to import

    return escape(text)


def _page(*parts: str) -> str:
    return f'<div style="color:inherit;overflow-x:auto">{"".join(parts)}</div>'


def _title(name: str, words: str = "") -> str:
    return f"<div><b>{_escaped(name)}</b> {_escaped(words)}</div>"


def _facts(rows: Iterable[tuple[str, str]]) -> str:
    lines = (
        f'<tr style="background:none"><th scope="row" style="{CELL}">{_escaped(label)}</th>'
        f'<td style="{CELL}">{_escaped(value)}</td></tr>'
        for label, value in rows
    )
    return f'<table style="border-collapse:collapse">{"".join(lines)}</table>'


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col" style="{RULED}">{_escaped(heading)}</th>' for heading in headings)
    lines = "".join(
        f'<tr style="background:none">{"".join(f"<td style={CELL!r}>{_escaped(cell)}</td>" for cell in row)}</tr>'
        for row in rows
    )
    return f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>'
