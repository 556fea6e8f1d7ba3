# SPDX-License-Identifier: BSD-3-Clause
"""Turn repeated iterations of a cascade into loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from openneutron.compiler.schedule.schedule import Loop, Rows, Step, Wait

PERIODS = (1, 2, 3, 4)
"""A loop's body may hold these numbers of iterations: where rows are doubled, every second iteration is equal."""

Round = tuple[Rows | Wait, ...]


def compressed(all_rounds: Sequence[Round]) -> list[Step]:
    """Return the same stripes in the same order, with loops for repeated iterations."""
    steps: list[Step] = []
    at = 0
    while at < len(all_rounds):
        best_saved, best = 0, (1, 1)
        for period in PERIODS:
            count = _repeats(all_rounds, at, period)
            saved = sum(len(each) for each in all_rounds[at : at + (count - 1) * period])
            if saved > best_saved:
                best_saved, best = saved, (period, count)
        period, count = best
        body = [*chain.from_iterable(all_rounds[at : at + period])]
        if count > 1:
            after = [*chain.from_iterable(all_rounds[at + period : at + 2 * period])]
            steps.append(
                Loop(count, tuple(_moving(one, by) for one, by in zip(body, _moves(body, after), strict=True)))
            )
        else:
            steps += body
        at += period * count
    return steps


def _moving(part: Rows | Wait, by: int) -> Rows | Wait:
    return replace(part, step=by) if isinstance(part, Rows) else part


def _repeats(all_rounds: Sequence[Round], at: int, period: int) -> int:
    """Return the number of repetitions of the ``period`` iterations from ``at`` on, each shifted by the same number of rows."""

    def body(index: int) -> list[Rows | Wait]:
        start = at + index * period
        return [*chain.from_iterable(all_rounds[start : start + period])] if start + period <= len(all_rounds) else []

    first, second = body(0), body(1)
    if not first or not _alike(first, second):
        return 1
    moved = _moves(first, second)
    count, before = 2, second
    while True:
        after = body(count)
        if not _alike(before, after) or _moves(before, after) != moved:
            return count
        count, before = count + 1, after


def _moves(one: Sequence[Rows | Wait], other: Sequence[Rows | Wait]) -> list[int]:
    """Return the rows by which each stripe differs between two equal iterations; 0 for a wait."""
    return [
        b.row0 - a.row0 if isinstance(a, Rows) and isinstance(b, Rows) else 0 for a, b in zip(one, other, strict=True)
    ]


def _alike(one: Sequence[Rows | Wait], other: Sequence[Rows | Wait]) -> bool:
    """Return True for the same calls with the same numbers of rows, and the same waits."""
    return len(one) == len(other) and all(
        a.call == b.call and a.row1 - a.row0 == b.row1 - b.row0
        if isinstance(a, Rows) and isinstance(b, Rows)
        else a == b
        for a, b in zip(one, other, strict=True)
    )
