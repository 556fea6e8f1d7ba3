# SPDX-License-Identifier: BSD-3-Clause
"""A plan as steps: calls and stripes in order, repeated iterations as loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from types import MappingProxyType

from openneutron.compiler.schedule.schedule import Loop, Rows, Schedule, Step, Whole
from openneutron.compiler.search.cascade.patches import held_rows, offsets, stripe
from openneutron.compiler.search.cascade.stripes import Stripes, rounds
from openneutron.compiler.select.calls import KernelCall, Storage, Storages

PERIODS = (1, 2, 3, 4)
"""The iterations that a loop's body may hold: where rows are doubled, every second iteration is alike."""

Round = tuple[Rows, ...]

Numbers = Mapping[int, tuple[tuple[int, ...], ...]]
"""For each position of a segment the numbers of its calls in the schedule: by piece, and in a piece by call."""


def schedule_of(parts: Sequence[Stripes], storages: Storages) -> tuple[Schedule, Storages]:
    """Return the schedule of a plan's parts, without prefetch, and the storages with those between the calls of patches."""
    calls: list[KernelCall] = []
    steps: list[Step] = []
    rings: dict[str, int] = {}
    overlaps: dict[tuple[str, str], int] = {}
    allocations: dict[str, tuple[str, int]] = {}
    between: dict[str, Storage] = {}
    for part in parts:
        steps += part_steps(part, numbered(part, calls))
        rings |= part.rings
        overlaps |= part.overlaps
        for storage, held, offset in _between(part):
            between[storage.name] = storage
            rings[storage.name] = held
            allocations[storage.name] = part.between, offset
    schedule = Schedule(
        tuple(calls),
        tuple(steps),
        MappingProxyType(rings),
        0,
        MappingProxyType(overlaps),
        MappingProxyType(allocations),
    )
    if not between:
        return schedule, storages
    own = dict(zip(between, between, strict=True))
    return schedule, Storages({**storages.storages, **between}, {**storages.of, **own})


def numbered(part: Stripes, calls: list[KernelCall]) -> Numbers:
    """Append the calls of a part to ``calls`` and return their numbers."""
    numbers = {}
    for position in part.segment.positions:
        made = part.segment.network.calls[position]
        pieces = ((made.call,),) if made.patch is None else made.patch.pieces
        starts = accumulate((len(piece) for piece in pieces[:-1]), initial=len(calls))
        numbers[position] = tuple(
            tuple(range(start, start + len(piece))) for start, piece in zip(starts, pieces, strict=True)
        )
        calls += chain.from_iterable(pieces)
    return numbers


def _between(part: Stripes) -> Iterator[tuple[Storage, int, int]]:
    """Yield the storages between the calls of the part's patches, the rows held of each, and its offset in the allocation."""
    positions = [p for p in part.segment.positions if part.segment.network.calls[p].patch is not None]
    done = rounds(part.segment, part.pace, part.height, part.even) if positions else {}
    for position in positions:
        patch = part.segment.network.calls[position].patch
        assert patch is not None
        held = held_rows(patch.needs, done[position])
        for piece in patch.storages:
            yield from zip(piece, held, offsets(held, patch.row_bytes), strict=False)


def part_steps(part: Stripes, numbers: Numbers) -> list[Step]:
    """Return the steps of a segment."""
    if part.is_whole:
        return [Whole(numbers[part.segment.first][0][0])]
    done = rounds(part.segment, part.pace, part.height, part.even)
    passed = dict.fromkeys(part.segment.positions, 0)
    made: list[Round] = []
    for index in range(len(done[part.pace])):
        stripes: list[Rows] = []
        for position in part.segment.positions:
            row = done[position][index]
            if row > passed[position]:
                stripes += _stripes(part, position, passed[position], row, numbers[position])
                passed[position] = row
        made.append(tuple(stripes))
    return compressed(made)


def _stripes(
    part: Stripes, position: int, row0: int, row1: int, numbers: tuple[tuple[int, ...], ...]
) -> Iterator[Rows]:
    """Yield the stripes of a position in an iteration: of one call, or piece by piece of each call of a chain."""
    network = part.segment.network
    call = network.calls[position]
    spans = [(row0, row1)] if call.patch is None else stripe(call.patch.needs, row0, row1)
    totals = [call.rows] if call.patch is None else call.patch.rows
    for piece in numbers:
        for number, (begin, end), total in zip(piece, spans, totals, strict=True):
            if begin < end:
                yield Rows(number, total - end, total - begin) if network.backwards else Rows(number, begin, end)


def compressed(all_rounds: Sequence[Round]) -> list[Step]:
    """Return the same stripes in the same order, with repeated iterations as loops."""
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
            steps.append(
                Loop(
                    count,
                    tuple(replace(one, step=other.row0 - one.row0) for one, other in zip(body, after, strict=True)),
                )
            )
        else:
            steps += body
        at += period * count
    return steps


def _repeats(all_rounds: Sequence[Round], at: int, period: int) -> int:
    """Return how often the ``period`` iterations from ``at`` on are repeated, each time moved by as many rows."""

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
    """Return True for the same calls with as many rows each."""
    return len(one) == len(other) and all(
        a.call == b.call and a.row1 - a.row0 == b.row1 - b.row0 for a, b in zip(one, other, strict=True)
    )
