# SPDX-License-Identifier: BSD-3-Clause
"""A plan as steps: calls and stripes one after the other, rounds that repeat as loops."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from types import MappingProxyType

from openneutron.compiler.cascade.stripes import Stripes, rounds
from openneutron.compiler.schedule import Loop, Rows, Schedule, Step, Whole

PERIODS = (1, 2, 3, 4)
"""Rounds that a loop's body may hold: where rows are doubled, every second round is alike."""

Round = tuple[Rows, ...]


def schedule_of(parts: Sequence[Stripes]) -> Schedule:
    """The schedule of a plan's parts, without copies of constants."""
    calls = tuple(part.call for part in parts[0].segment.network.calls) if parts else ()
    steps: list[Step] = []
    rings: dict[str, int] = {}
    overlaps: dict[tuple[str, str], int] = {}
    for part in parts:
        steps += part_steps(part)
        rings |= part.rings
        overlaps |= part.overlaps
    return Schedule(calls, tuple(steps), MappingProxyType(rings), 0, MappingProxyType(overlaps))


def part_steps(part: Stripes) -> list[Step]:
    """The steps of a segment."""
    if part.is_whole:
        return [Whole(part.segment.first)]
    done = rounds(part.segment, part.pace, part.height, part.even)
    passed = dict.fromkeys(part.segment.positions, 0)
    made: list[Round] = []
    for index in range(len(done[part.pace])):
        stripes = []
        for position in part.segment.positions:
            row = done[position][index]
            if row > passed[position]:
                stripes.append(_rows(part, position, passed[position], row))
                passed[position] = row
        made.append(tuple(stripes))
    return compressed(made)


def _rows(part: Stripes, position: int, row0: int, row1: int) -> Rows:
    network = part.segment.network
    total = network.calls[position].rows
    return Rows(position, total - row1, total - row0) if network.backwards else Rows(position, row0, row1)


def compressed(all_rounds: Sequence[Round]) -> list[Step]:
    """The same stripes in the same order, those of rounds that repeat in loops."""
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
            after = chain.from_iterable(all_rounds[at + period : at + 2 * period])
            steps.append(Loop(count, tuple(_moving(one, other) for one, other in zip(body, after, strict=True))))
        else:
            steps += body
        at += period * count
    return steps


def _moving(one: Rows, other: Rows) -> Rows:
    return Rows(one.call, one.row0, one.row1, other.row0 - one.row0)


def _repeats(all_rounds: Sequence[Round], at: int, period: int) -> int:
    """How often the ``period`` rounds from ``at`` on are repeated, each time moved by as many rows."""

    def body(index: int) -> list[Rows]:
        start = at + index * period
        return [*chain.from_iterable(all_rounds[start : start + period])] if start + period <= len(all_rounds) else []

    first, second = body(0), body(1)
    if not first or not _alike(first, second):
        return 1
    moved = [other.row0 - one.row0 for one, other in zip(first, second, strict=True)]
    count, before = 2, second
    while True:
        after = body(count)
        if not _alike(before, after) or [b.row0 - a.row0 for a, b in zip(before, after, strict=True)] != moved:
            return count
        count, before = count + 1, after


def _alike(one: Sequence[Rows], other: Sequence[Rows]) -> bool:
    """The same calls with as many rows each."""
    return len(one) == len(other) and all(
        a.call == b.call and a.row1 - a.row0 == b.row1 - b.row0 for a, b in zip(one, other, strict=True)
    )
