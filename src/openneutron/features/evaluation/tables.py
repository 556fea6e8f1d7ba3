# SPDX-License-Identifier: BSD-3-Clause
"""Evaluations as tables."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from openneutron.features.evaluation.results import ClassResult, Evaluation, PairResult, SideResult
from openneutron.features.evaluation.sides import TITLES
from openneutron.features.report.units import duration_text, plural


def evaluation_table(evaluation: Evaluation) -> RenderableType:
    """Return the sides with their metric and time, the pairs of sides, the worst classes and the notes."""
    title = Text.assemble(
        (evaluation.model, "bold"),
        f" for {evaluation.target} on {evaluation.data}: {plural(evaluation.samples, 'sample')}",
        "" if evaluation.complete else " until the interrupt",
    )
    parts: list[RenderableType] = [title, "", _sides(evaluation)]
    if evaluation.pairs:
        parts += ["", _pairs(evaluation)]
    if evaluation.worst:
        parts += ["", _worst(evaluation)]
    if evaluation.notes:
        parts += ["", *(Text(f"note: {note}") for note in evaluation.notes)]
    return Group(*parts)


def metric_text(side: SideResult) -> str:
    """Return a side's metric: per cent for a share."""
    if side.metric is None:
        return ""
    return f"{side.metric:.6g}" if side.right is None else f"{100 * side.metric:.2f} %"


def sqnr_text(pair: PairResult) -> str:
    """Return the ratio of signal to noise; a word where there is no noise, or no signal."""
    if pair.sqnr_db is not None:
        return f"{pair.sqnr_db:.1f} dB"
    return "no difference"


def _sides(evaluation: Evaluation) -> Table:
    with_metric, with_right = evaluation.metric is not None, any(item.right is not None for item in evaluation.sides)
    table = _table("side")
    if with_metric:
        table.add_column(str(evaluation.metric), justify="right", style="bold", no_wrap=True)
    if with_right:
        table.add_column("right", justify="right", no_wrap=True)
    table.add_column("a sample, this computer", justify="right", no_wrap=True)
    for item in evaluation.sides:
        cells = [TITLES[item.side]]
        if with_metric:
            cells.append(metric_text(item))
        if with_right:
            cells.append(f"{item.right} of {evaluation.samples}")
        table.add_row(*cells, duration_text(1e3 * item.seconds / evaluation.samples))
    return table


def _pairs(evaluation: Evaluation) -> Table:
    table = _table("compared")
    with_agreement = any(pair.agreeing is not None for pair in evaluation.pairs)
    for heading in (*(["same class"] if with_agreement else []), "same bytes", "SQNR"):
        table.add_column(heading, justify="right", no_wrap=True)
    for pair in evaluation.pairs:
        one, other = (TITLES[side] for side in pair.sides)
        agreeing = [f"{pair.agreeing} of {evaluation.samples}"] if pair.agreeing is not None else []
        if with_agreement and not agreeing:
            agreeing = [""]
        table.add_row(f"{one}, {other}", *agreeing, f"{pair.identical} of {evaluation.samples}", sqnr_text(pair))
    return table


def _worst(evaluation: Evaluation) -> Table:
    table = _table("worst classes")
    table.add_column("samples", justify="right")
    for side in evaluation.sides:
        table.add_column(f"right, {side.side}", justify="right", no_wrap=True)
    table.add_column(f"taken for, {evaluation.sides[-1].side}", overflow="fold")
    for item in evaluation.worst:
        table.add_row(item.name, str(item.samples), *map(str, item.right), _taken(item))
    return table


def _taken(item: ClassResult) -> str:
    return ", ".join(f"{name} ({count})" for name, count in item.taken_for)


def _table(first: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(first, style="cyan", overflow="fold")
    return table
