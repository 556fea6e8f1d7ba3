# SPDX-License-Identifier: BSD-3-Clause
"""Summaries as HTML for notebooks: plain tables in the notebook's own colours, without a script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from openneutron.features.report.advice import Advice
from openneutron.features.report.summary import Summary, folded
from openneutron.features.report.table import Table, escaped, facts
from openneutron.features.report.text import SHOWN_ON_CPU, calls_of, explanation, plain, summary_rows, summary_table

if TYPE_CHECKING:
    from openneutron.features.report.loaded import LoadedSummary


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
        """Return the figures of the compile."""
        raise NotImplementedError

    @property
    def quick_advice(self) -> tuple[Advice, ...]:
        """Return the advice that is found without a search; see ``quick_advice``."""
        raise NotImplementedError

    def summary(self) -> str:
        """Return the figures as text; a notebook shows them as a table."""
        found = self.quick_advice
        return ShownText(plain(summary_table(self.report, advice=found)), summary_html(self.report, found))

    def explain(self) -> str:
        """Return the text of ``openneutron explain``, which a notebook shows as tables. It has the figures, each kernel
        call with its modelled cost, and each operator on the CPU with the reason."""
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

    return _page(_title(summary.file), facts(loaded_rows(summary)).html(for_notebook=True))


def summary_html(summary: Summary, advice: Sequence[Advice] = ()) -> str:
    """Return the figures of a compile as HTML, with up to ``SHOWN_ON_CPU`` rows of operators on the CPU."""
    return _page(*_head(summary, advice), *_on_cpu(summary, SHOWN_ON_CPU))


def explanation_html(summary: Summary, advice: Sequence[Advice] = ()) -> str:
    """Return the figures of a compile as HTML, with every kernel call and every operator on the CPU."""
    calls = (
        part
        for partition in summary.partitions
        for part in (_title(partition.heading), calls_of(partition, summary.target).html(for_notebook=True))
    )
    return _page(*_head(summary, advice), *calls, *_on_cpu(summary, None))


def _head(summary: Summary, advice: Sequence[Advice]) -> tuple[str, str]:
    title = _title(summary.model, f"for {summary.target.name} ({summary.target.title})")
    return title, facts(summary_rows(summary, advice)).html(for_notebook=True)


def _on_cpu(summary: Summary, limit: int | None) -> list[str]:
    rows = folded(summary.on_cpu)
    if not rows:
        return []
    shown = rows[:limit]
    cells = [(row.title, row.items[0].name, row.why) for row in shown]
    rest = sum(len(row.items) for row in rows[len(shown) :])
    more = [f"<div>... and {rest} more; explain() lists all.</div>"] if rest else []
    return [_title("On the CPU"), Table.of_rows(("operator", "name", "why"), cells).html(for_notebook=True), *more]


def _page(*parts: str) -> str:
    return f'<div style="color:inherit;overflow-x:auto">{"".join(parts)}</div>'


def _title(name: str, words: str = "") -> str:
    return f"<div><b>{escaped(name)}</b> {escaped(words)}</div>"
