# SPDX-License-Identifier: BSD-3-Clause
"""Compute the progress of each call of a segment in stripes, the cycles that follow, and loops of equal iterations.

In an iteration every call of the segment runs at most once, in order, on the rows between its progress before and its
progress after. The pacing call computes a fixed number of rows per iteration, the stripe height. A call before it
computes the rows that its readers need, and a call after it computes all rows that it can.

Example: convolutions a, b and c of 3x3 with 8 rows each. Row r of b needs rows r - 1 to r + 1 of a; c needs b alike.
With c as the pacing call and a stripe height of 2, the rows done after each iteration are::

    iteration   0  1  2  3
    a           4  6  8  8
    b           3  5  7  8
    c           2  4  6  8

In iteration 1, a computes rows 4 and 5 while b has done 3 rows: row 3 of b needs row 2 of a. Rows 2 to 5 of a are
held at once, so the output of a is a rolling buffer of 4 rows instead of 8.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from openneutron.compiler.schedule.schedule import Loop, Rows, Step, Wait
from openneutron.compiler.search.cascade.network import Network, Segment

PERIODS = (1, 2, 3, 4)
"""The numbers of iterations that the body of a loop may hold. Where rows are doubled, every second iteration is
equal."""

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
    """Return how many times the ``period`` iterations from index ``at`` repeat, each time moved by the same number of
    rows."""

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
    """Return the number of rows by which each stripe moves from one iteration to an equal one; 0 for a wait."""
    return [
        b.row0 - a.row0 if isinstance(a, Rows) and isinstance(b, Rows) else 0 for a, b in zip(one, other, strict=True)
    ]


def _alike(one: Sequence[Rows | Wait], other: Sequence[Rows | Wait]) -> bool:
    """Return whether two iterations have the same calls, with the same numbers of rows, and the same waits."""
    return len(one) == len(other) and all(
        a.call == b.call and a.row1 - a.row0 == b.row1 - b.row0
        if isinstance(a, Rows) and isinstance(b, Rows)
        else a == b
        for a, b in zip(one, other, strict=True)
    )


Progress = Sequence[int]
"""The number of output rows that are done after each iteration."""


class Pacing(NamedTuple):
    """The way in which a segment is cut into stripes: the pacing call, its stripe height, and whether iterations are
    even (see ``rounds``)."""

    pace: int
    height: int
    even: bool


def rounds(segment: Segment, pace: int, height: int, even: bool = False) -> dict[int, Progress]:
    """Return the progress of every call of the segment when call ``pace`` computes ``height`` rows per iteration.

    With ``even``, no call computes more than its share of rows in an iteration. The share of a call is ``height`` in proportion to
    its rows. Without ``even``, the first iteration computes halos too, and the last one finds padding in their place. Even
    iterations instead begin earlier and end later.
    """
    done = Paced.of(segment, Pacing(pace, height, even)).progress(segment)
    count = max(map(len, done.values()))
    return {position: [0] * (count - len(progress)) + progress for position, progress in done.items()}


@dataclass(slots=True)
class Paced:
    """The progress of calls under a pacing, from the call before ``end`` backwards, for as many calls as were needed
    so far.

    A call reads nothing of later calls. The later calls therefore have the same progress in every segment with this
    end, wherever the segment begins. ``cycles`` has for each call the modelled cycles of this call and all later
    ones.
    """

    network: Network
    end: int
    pacing: Pacing
    done: dict[int, list[int]]
    most: int
    """The number of iterations of the pacing call and of the calls after it."""
    cycles: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, segment: Segment, pacing: Pacing) -> Paced:
        """Return the progress of the pacing call, and of the calls that read its output directly or through other
        calls."""
        total = segment.network.calls[pacing.pace].rows
        height = pacing.height
        done = {pacing.pace: [min(total, (i + 1) * height) for i in range(-(-total // height))]}
        made = cls(segment.network, segment.end, pacing, done, 0, {segment.end: 0})
        _go_on_behind(segment, pacing.pace, done, made._share)
        made.most = max(map(len, done.values()))
        return made

    def _share(self, position: int) -> int | None:
        calls, (pace, height, even) = self.network.calls, self.pacing
        return -(-calls[position].rows * height // calls[pace].rows) if even else None

    def progress(self, segment: Segment) -> dict[int, list[int]]:
        """Return the progress of all calls of a segment. It must end at ``end`` and begin no later than the segments
        before it.

        A call that does not depend on the pacing call computes in each iteration the rows that its readers need.
        Lists may differ in length: they are aligned at their ends, and a shorter one begins in a later iteration.
        """
        for position in range(self.end - 1, segment.first - 1, -1):
            if position not in self.done:
                self.done[position] = self._before(segment, position)
        return self.done

    def reaching(self, segment: Segment) -> dict[int, list[int]]:
        """Return the result of ``progress`` and add the cycles of the calls to ``cycles``."""
        self.progress(segment)
        for position in range(self.end - len(self.cycles), segment.first - 1, -1):
            self.cycles[position] = self.cycles[position + 1] + _cycles(self.network, position, self.done[position])
        return self.done

    def _before(self, segment: Segment, position: int) -> list[int]:
        """Return the progress of a call, from the known progress of its readers."""
        call = self.network.calls[position]
        piece = self.network.pieces[call.output]
        progress: list[int] | None = None
        for reader in piece.readers:
            for feed in segment.feeds[reader] if position < reader < self.end else ():
                if feed.writer == position:
                    high = feed.needs.high
                    demand = [high[x] for x in self.done[reader]]
                    if demand[-1] > call.rows or min(demand) < 0:
                        demand = [min(call.rows, max(0, row)) for row in demand]
                    progress = demand if progress is None else _later(progress, demand)
        if progress is None or piece.last >= self.end:
            # Later calls or the graph's output need all rows: they are computed in equal steps.
            equal = [-(-call.rows * (i + 1) // self.most) for i in range(self.most)]
            progress = equal if progress is None else _later(progress, equal)
        most = self._share(position)
        return progress if most is None else _begun_early(progress, most)


def _go_on_behind(segment: Segment, pace: int, done: dict[int, list[int]], share: Callable[[int], int | None]) -> None:
    """Add the progress of the calls that read the pacing call's output directly or through other calls. Each computes
    all rows that it can."""
    calls = segment.network.calls
    for position in range(pace + 1, segment.end):
        rows, paced = calls[position].rows, None
        for feed in segment.feeds[position]:
            if feed.writer in done:
                possible = _possible(done[feed.writer], calls[feed.writer].rows, feed.needs.high, rows)
                paced = possible if paced is None else _merged(min, paced, possible)
        if paced is not None:
            most = share(position)
            done[position] = paced if most is None else _held_back(paced, most)
    count = max(map(len, done.values()))
    for position, progress in done.items():
        done[position] = progress + progress[-1:] * (count - len(progress))


def _later(one: list[int], other: list[int]) -> list[int]:
    """Return the larger value of two progresses in each iteration. The lists are aligned at their ends."""
    return _merged(max, one[::-1], other[::-1])[::-1]


def _merged(choose: Callable[[int, int], int], one: list[int], other: list[int]) -> list[int]:
    """Return ``choose`` of two progresses for each iteration. The shorter one continues with its last value."""
    length = max(len(one), len(other))
    one, other = (each + each[-1:] * (length - len(each)) for each in (one, other))
    return [*map(choose, one, other)]


def _held_back(progress: list[int], share: int) -> list[int]:
    """Return the progress with at most ``share`` rows per iteration. It may need more iterations at the end."""
    held: list[int] = []
    now = 0
    for there in progress:
        now = min(there, now + share)
        held.append(now)
    while now < progress[-1]:
        now = min(progress[-1], now + share)
        held.append(now)
    return held


def _begun_early(progress: list[int], share: int) -> list[int]:
    """Return the progress with at most ``share`` rows per iteration. It may need more iterations at the start."""
    begun: list[int] = []
    now = progress[-1]
    for there in reversed(progress):
        now = max(there, now - share)
        begun.append(now)
    while now > share:
        now -= share
        begun.append(now)
    return begun[::-1]


def _possible(written: Sequence[int], written_rows: int, high: Sequence[int], rows: int) -> list[int]:
    """Return for each progress of a writer the number of rows that its reader can compute."""
    found = {x: rows if x == written_rows else bisect_right(high, x) - 1 for x in set(written)}
    return [found[x] for x in written]


def cycles_of(segment: Segment, done: Mapping[int, Progress]) -> int:
    """Return the modelled cycles of all calls of the segment."""
    return sum(_cycles(segment.network, position, done[position]) for position in segment.positions)


def _cycles(network: Network, position: int, progress: Progress) -> int:
    call, ends = network.calls[position], {*progress, 0}
    if call.row_cycles is not None:
        return call.row_cycles * progress[-1] + call.issue_cycles * (len(ends) - 1)
    _, *steps = sorted(ends)
    return sum(call.cycles(begin, end, network.target) for begin, end in zip((0, *steps), steps, strict=False))
