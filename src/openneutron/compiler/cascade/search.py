# SPDX-License-Identifier: BSD-3-Clause
"""The fastest way through a network for a budget: which runs of calls are cascades, and how high their stripes are.

A plan cuts the calls, in their order, into segments; a segment is a call computed whole, or a cascade. Its memory is the most
any segment takes, its cycles are their sum, so the best plan for a budget is a shortest path over segments that fit: exact
among the segments and stripes that are tried. What is tried does not depend on the budget, so that a greater budget never
costs more cycles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from openneutron.compiler.cascade.network import Network
from openneutron.compiler.cascade.segment import Segment, segment, window_rows
from openneutron.compiler.cascade.stripes import Stripes, evaluate

LONGEST = 24
"""Calls of a cascade at most."""

STRIPES = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128)
"""Numbers of stripes that are tried, beside one for each row."""

FINE = (1, 2, 4)
"""Rows of a cascade's first call in a round that are tried where it has more rows than the last one."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Segments in order, with their stripes; ``peak_bytes`` is an estimate until everything has an address."""

    parts: tuple[Stripes, ...]
    peak_bytes: int
    cycles: int


def heights(found: Segment) -> Iterator[tuple[int, int]]:
    """(call that sets the pace, its rows a round) that are tried for a cascade."""
    calls = found.network.calls
    first, last = calls[found.first].rows, calls[found.end - 1].rows
    yield from (
        (found.end - 1, height) for height in dict.fromkeys(-(-last // n) for n in (*STRIPES, last) if n <= last)
    )
    if first > last:
        yield from ((found.first, height) for height in FINE if height * last < first * 2)


@dataclass(slots=True)
class Search:
    """Plans of one network. What was evaluated once is kept.

    ``constants_bytes``: where it is not 0, the constants of no cascade take more.
    """

    network: Network
    constants_bytes: int = 0
    _window_rows: dict[str, int] = field(init=False)
    _segments: dict[tuple[int, int], Segment | None] = field(default_factory=dict)
    _least: dict[tuple[int, int], int] = field(default_factory=dict)
    _candidates: dict[tuple[int, int], tuple[Stripes, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._window_rows = window_rows(self.network)

    def whole(self, position: int) -> Stripes:
        """A call computed whole."""
        found = self._candidates.get((position, position + 1))
        if found is None:
            alone = segment(self.network, position, position + 1)
            assert alone is not None
            alone.feeds[position] = ()  # type: ignore[index]
            found = (evaluate(alone, position, max(1, self.network.calls[position].rows)),)
            self._candidates[position, position + 1] = found
        return found[0]

    def cascades(self, first: int, end: int, budget: int) -> tuple[Stripes, ...]:
        """All that is tried for calls [first, end); nothing where none of it can fit the budget."""
        key = (first, end)
        if key not in self._segments:
            found = self._segments[key] = segment(self.network, first, end)
            self._least[key] = found.least_bytes(self._window_rows) if found is not None else 0
        found = self._segments[key]
        if found is None or self._least[key] > budget:
            return ()
        if key not in self._candidates:
            self._candidates[key] = tuple(evaluate(found, pace, height) for pace, height in heights(found))
        return self._candidates[key]

    def plan(self, budget: int) -> Plan | None:
        """The plan of the fewest cycles that takes at most ``budget`` bytes, or None where there is none."""
        count = len(self.network.calls)
        wholes = [self.whole(position) for position in range(count)]
        tight = [0]
        for part in wholes:
            tight.append(tight[-1] + (part.peak_bytes > budget))
        constants = [0, *accumulate(each.constants_bytes for each in self.network.calls)]
        best: list[tuple[int, int, Stripes | None, int] | None] = [(0, 0, None, -1), *[None] * count]
        for first in range(count):
            start = best[first]
            if start is None:
                continue
            if wholes[first].peak_bytes <= budget:
                _improve(best, first, first + 1, wholes[first])
            for end in range(first + 2, min(first + LONGEST, count) + 1):
                if self.constants_bytes and constants[end] - constants[first] > self.constants_bytes:
                    break
                # A cascade of calls that all fit whole gains nothing.
                if tight[end] == tight[first]:
                    continue
                for part in self.cascades(first, end, budget):
                    if part.peak_bytes <= budget:
                        _improve(best, first, end, part)
                if self._segments[first, end] is None:
                    break
        return _plan(best)

    def least(self) -> Plan:
        """The plan of the least memory."""
        high = max((self.whole(position).peak_bytes for position in range(len(self.network.calls))), default=0)
        found = self.plan(high)
        assert found is not None
        while True:
            smaller = self.plan(found.peak_bytes - 1)
            if smaller is None:
                return found
            found = smaller


def _improve(best: list[tuple[int, int, Stripes | None, int] | None], first: int, end: int, part: Stripes) -> None:
    start = best[first]
    assert start is not None
    cycles, peak = start[0] + part.cycles, max(start[1], part.peak_bytes)
    there = best[end]
    if there is None or (cycles, peak) < there[:2]:
        best[end] = (cycles, peak, part, first)


def _plan(best: list[tuple[int, int, Stripes | None, int] | None]) -> Plan | None:
    at = best[-1]
    if at is None:
        return None
    cycles, peak, parts = at[0], at[1], []
    while at is not None and at[2] is not None:
        parts.append(at[2])
        at = best[at[3]]
    return Plan(tuple(reversed(parts)), peak, cycles)
