# SPDX-License-Identifier: BSD-3-Clause
"""The fastest way through a network for a budget: which runs of calls are cascades, and how high their stripes are.

A plan cuts the calls, in their order, into segments; a segment is a call computed whole, or a cascade (of one call too, whose
stripes then lie over rows it has read). Its memory is the most any segment takes, its cycles are their sum, so the best plan
for a budget is a shortest path over segments that fit: exact among the segments and stripes that are tried. What is tried
does not depend on the budget, so that a greater budget never costs more cycles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from openneutron.compiler.cascade.network import Network
from openneutron.compiler.cascade.segment import Segment, segment, window_rows
from openneutron.compiler.cascade.stripes import Stripes, evaluate
from openneutron.compiler.effort import DEFAULT, Effort

EVEN = 4
"""Rounds from which on even ones are tried too."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Segments in order, with their stripes; ``peak_bytes`` is an estimate until everything has an address.

    It includes constants that are fetched, ``tensor_bytes`` does not.
    """

    parts: tuple[Stripes, ...]
    peak_bytes: int
    cycles: int

    @property
    def tensor_bytes(self) -> int:
        return max((part.peak_bytes - part.constants_bytes for part in self.parts), default=0)


def ways(found: Segment, effort: Effort) -> Iterator[tuple[int, int, bool]]:
    """What is tried for a cascade: the call that sets the pace, its rows a round, and whether the rounds are even."""
    calls = found.network.calls
    first, last = calls[found.first].rows, calls[found.end - 1].rows
    alone = found.end - found.first == 1
    for height in dict.fromkeys(-(-last // n) for n in (*effort.stripes, last) if n <= last):
        if height < last or not alone:
            yield found.end - 1, height, False
        if height * EVEN <= last and not alone:
            yield found.end - 1, height, True
    if first > last:
        yield from ((found.first, height, True) for height in effort.fine if height * last < first * 2)
    if effort.inner_paces:
        # Of calls with as many rows one is enough.
        inner = {calls[position].rows: position for position in range(found.end - 2, found.first, -1)}
        for rows, position in inner.items():
            if rows not in (first, last):
                yield from (
                    (position, height, even) for height in effort.fine if height < rows for even in (False, True)
                )


@dataclass(slots=True)
class _Try:
    """A way to run a segment, what it takes at least, and what it comes to once somebody had to know."""

    way: tuple[int, int, bool]
    least_bytes: int
    made: Stripes | None = None


@dataclass(slots=True)
class Search:
    """Plans of one network. What was evaluated once is kept."""

    network: Network
    effort: Effort = DEFAULT
    _window_rows: dict[str, int] = field(init=False)
    _compute: list[int] = field(init=False)
    _smallest: Plan | None = None
    _segments: dict[tuple[int, int], Segment | None] = field(default_factory=dict)
    _least: dict[tuple[int, int], int] = field(default_factory=dict)
    _tries: dict[tuple[int, int], list[_Try]] = field(default_factory=dict)
    _wholes: dict[int, Stripes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._window_rows = window_rows(self.network)
        self._compute = [0, *accumulate(each.compute_cycles for each in self.network.calls)]

    def whole(self, position: int) -> Stripes:
        """A call computed whole."""
        found = self._wholes.get(position)
        if found is None:
            alone = segment(self.network, position, position + 1)
            assert alone is not None
            found = evaluate(alone, position, max(1, self.network.calls[position].rows))
            self._wholes[position] = found
        return found

    def cascades(self, first: int, end: int, budget: int) -> Iterator[Stripes]:
        """What is tried for calls [first, end) and fits the budget."""
        key = (first, end)
        if key not in self._segments:
            by_rows = self.network.calls[first].by_rows
            made = self._segments[key] = segment(self.network, first, end) if by_rows else None
            self._least[key] = made.least_bytes(self._window_rows) if made is not None else 0
        found = self._segments[key]
        if found is None or self._least[key] > budget:
            return
        if key not in self._tries:
            self._tries[key] = [_Try(way, self._least_of(found, way)) for way in ways(found, self.effort)]
        for each in self._tries[key]:
            if each.least_bytes > budget:
                continue
            if each.made is None:
                each.made = evaluate(found, *each.way)
                assert each.made.peak_bytes >= each.least_bytes, "a bound is above what it bounds"
                each.least_bytes = each.made.peak_bytes
            if each.made.peak_bytes <= budget:
                yield each.made

    def _least_of(self, found: Segment, way: tuple[int, int, bool]) -> int:
        pace, height, even = way
        if pace != found.end - 1:
            return self._least[found.first, found.end]
        return found.least_bytes(found.held_at_once(height, even, self._window_rows))

    def _ends_at(self, end: int) -> Iterator[int]:
        """Where cascades that end at ``end`` may begin, the shortest first."""
        for first in range(end - 1, max(-1, end - self.effort.longest - 1), -1):
            yield first
            if not self.network.calls[first].by_rows:
                return

    def plan(self, budget: int) -> Plan | None:
        """The plan of the fewest cycles that takes at most ``budget`` bytes, or None where there is none."""
        count = len(self.network.calls)
        wholes = [self.whole(position) for position in range(count)]
        tight = [0, *accumulate(part.peak_bytes > budget for part in wholes)]
        issue = self.network.issue_cycles
        best: list[_Way | None] = [_Way(0, 0, None, -1), *[None] * count]
        for end in range(1, count + 1):
            if wholes[end - 1].peak_bytes <= budget:
                _improve(best, end - 1, end, wholes[end - 1])
            for first in self._ends_at(end):
                start, there = best[first], best[end]
                # A cascade of calls that all fit whole gains nothing.
                if start is None or tight[end] == tight[first]:
                    continue
                least = start.cycles + self._compute[end] - self._compute[first] + 2 * issue
                if there is not None and least + issue * (end - first - 1) > there.cycles:
                    continue
                for part in self.cascades(first, end, budget):
                    _improve(best, first, end, part)
        return _plan(best)

    def least(self) -> Plan:
        """The plan of the least memory."""
        if self._smallest is None:
            peaks = [0]
            for end in range(1, len(self.network.calls) + 1):
                best = max(peaks[end - 1], self.whole(end - 1).peak_bytes)
                for first in self._ends_at(end):
                    if peaks[first] < best:
                        parts = self.cascades(first, end, best - 1)
                        best = min([best, *(max(peaks[first], part.peak_bytes) for part in parts)])
                peaks.append(best)
            self._smallest = self.plan(peaks[-1])
        assert self._smallest is not None
        return self._smallest


@dataclass(frozen=True, slots=True)
class _Way:
    """The best way to a cut: cycles and memory up to there, the part that ends there and where it begins."""

    cycles: int
    peak_bytes: int
    part: Stripes | None
    first: int


def _improve(best: list[_Way | None], first: int, end: int, part: Stripes) -> None:
    start, there = best[first], best[end]
    if start is None:
        return
    way = _Way(start.cycles + part.cycles, max(start.peak_bytes, part.peak_bytes), part, first)
    if there is None or (way.cycles, way.peak_bytes) < (there.cycles, there.peak_bytes):
        best[end] = way


def _plan(best: list[_Way | None]) -> Plan | None:
    at = best[-1]
    if at is None:
        return None
    cycles, peak = at.cycles, at.peak_bytes
    parts = []
    while at is not None and at.part is not None:
        parts.append(at.part)
        at = best[at.first]
    return Plan(tuple(reversed(parts)), peak, cycles)
