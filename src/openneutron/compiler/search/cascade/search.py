# SPDX-License-Identifier: BSD-3-Clause
"""The fastest way through a network for a budget: which runs of calls are cascades, and how high their stripes are.

A plan cuts the calls, in their order, into segments; a segment is a call computed whole, or a cascade (of one call too, whose
stripes then lie over rows it has read). Its memory is the most any segment takes, its cycles are their sum, so the best plan
for a budget is a shortest path over segments that fit: exact among the segments and stripes that are tried. What is tried
does not depend on the budget, so that a greater budget never costs more cycles.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, groupby

from openneutron.compiler.cost.cycles import least_compute_cycles
from openneutron.compiler.search.cascade.least_peak import Bounded, floor_bytes, least_peak
from openneutron.compiler.search.cascade.network import Network
from openneutron.compiler.search.cascade.patched import Variant, variants
from openneutron.compiler.search.cascade.segment import Segment, rows_computed, segment, window_rows
from openneutron.compiler.search.cascade.stripes import Stripes, cycles_of, evaluate, evaluated, rounds
from openneutron.compiler.search.effort import DEFAULT, Effort

NO_LIMIT = 1 << 60

MOST_ROUNDS = 4096
"""The approximate limit on iterations of a cascade.

A loop of microcode repeats at most 65,535 times, and the driver checks at most 2^20 windows of a program
(docs/microcode.md). More iterations would save memory only in sequences of many thousand steps.
"""

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
        """The most that any part takes without its constants."""
        return max((part.peak_bytes - part.constants_bytes for part in self.parts), default=0)


def ways(found: Segment, effort: Effort) -> Iterator[tuple[int, int, bool]]:
    """What is tried for a cascade: the call that sets the pace, its rows a round, and whether the rounds are even."""
    calls = found.network.calls
    first, last = calls[found.first].rows, calls[found.end - 1].rows
    alone = found.end - found.first == 1 and calls[found.first].patch is None
    for height in dict.fromkeys(-(-last // n) for n in (*effort.stripes, min(last, MOST_ROUNDS)) if n <= last):
        if height < last or not alone:
            yield found.end - 1, height, False
        if height * EVEN <= last and not alone:
            yield found.end - 1, height, True
    if first > last:
        yield from ((found.first, height, True) for height in effort.fine if height * last < first * 2)
    # Of calls in between with as many rows one is enough.
    inner = {calls[position].rows: position for position in range(found.end - 2, found.first, -1)}
    for rows, position in {**inner, first: found.first}.items():
        if rows != last:
            heights = dict.fromkeys((*effort.fine, *(-(-rows // n) for n in effort.stripes)))
            yield from ((position, height, even) for height in heights if height < rows for even in (False, True))


def all_ways(found: Segment) -> Iterator[tuple[int, int, bool]]:
    """Every call of the cascade at the pace, with every number of rows, and rounds even or not."""
    calls = found.network.calls
    if found.end - found.first == 1:
        yield from ((found.first, height, False) for height in range(1, calls[found.first].rows))
        return
    for position in reversed(found.positions):
        yield from ((position, h, even) for h in range(1, calls[position].rows + 1) for even in (False, True))


def count_of_all(network: Network) -> int:
    """How many of ``all_ways`` there are in all cascades of a network, about."""
    count = 0
    for by_rows, run in groupby(network.calls, key=lambda call: call.by_rows):
        rows = [call.rows for call in run] if by_rows else []
        count += sum(2 * each * (n + 1) * (len(rows) - n) for n, each in enumerate(rows))
    return count


@dataclass(slots=True)
class _Try:
    """A way to run a segment, the memory and the cycles it takes at least, and what it comes to once somebody had to know."""

    way: tuple[int, int, bool]
    least_bytes: int
    least_cycles: int
    made: Stripes | None = None

    def evaluated(self, segment: Segment, most_cycles: int) -> Stripes | None:
        """What it comes to, or None where it takes more cycles than that."""
        if self.made is None and self.least_cycles <= most_cycles:
            done = rounds(segment, *self.way)
            cycles = cycles_of(segment, done)
            assert cycles >= self.least_cycles, "a bound is above what it bounds"
            self.least_cycles = cycles
            if cycles <= most_cycles:
                self.made = evaluated(segment, self.way, done, cycles)
                assert self.made.peak_bytes >= self.least_bytes, "a bound is above what it bounds"
                self.least_bytes = self.made.peak_bytes
        return self.made if self.least_cycles <= most_cycles else None


@dataclass(slots=True)
class _Found:
    """A segment, what it takes at least, and the ways to run it."""

    segment: Segment
    least_bytes: int
    tries: list[_Try] = field(default_factory=list)


@dataclass(slots=True)
class Search:
    """Plans of one network. What was evaluated once is kept.

    ``cuts``: no cascade goes on from before such a call to it.
    """

    network: Network
    effort: Effort = DEFAULT
    cuts: frozenset[int] = frozenset()
    _window_rows: dict[int, dict[str, int]] = field(init=False)
    _least: dict[int, int] = field(init=False)
    _compute: list[int] = field(init=False)
    _computed: list[int] = field(init=False)
    _left_out: list[int] = field(init=False)
    _smallest: Plan | None = None
    _variants: list[Variant] = field(init=False)
    _everything: bool = field(init=False)
    _segments: dict[tuple[int, int], list[_Found]] = field(default_factory=dict)
    _wholes: dict[int, Stripes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Every piece reads its chain's constants anew: no patches where they are copied.
        fetched = any(each.constants_bytes for each in self.network.calls)
        self._variants = [] if fetched else variants(self.network, self.effort)
        self._window_rows = {
            id(each): window_rows(each) for each in (self.network, *(v.network for v in self._variants))
        }
        self._computed = rows_computed(self.network)
        left_out = (n < call.rows for n, call in zip(self._computed, self.network.calls, strict=True))
        self._left_out = [0, *accumulate(left_out)]
        self._least = self._least_of_calls(self._computed)
        self._everything = count_of_all(self.network) <= self.effort.everything
        self._compute = [0, *accumulate(self._least_computed())]

    def whole(self, position: int) -> Stripes:
        """A call computed whole."""
        found = self._wholes.get(position)
        if found is None:
            alone = segment(self.network, position, position + 1)
            assert alone is not None
            found = evaluate(alone, position, max(1, self.network.calls[position].rows))
            self._wholes[position] = found
        return found

    def _tries_of(self, first: int, end: int, budget: int) -> Iterator[tuple[Segment, _Try]]:
        """What is tried for calls [first, end) and may fit the budget."""
        for found in self._runs(first, end):
            if found.least_bytes <= budget:
                for each in self._tries(found):
                    if each.least_bytes <= budget:
                        yield found.segment, each

    def _runs(self, first: int, end: int) -> list[_Found]:
        """Return the cascades of calls [first, end), by rows and in patches."""
        key = (first, end)
        if key not in self._segments:
            plain = [segment(self.network, first, end)] if self.network.calls[first].by_rows else []
            patched = [each.segment(first, end, self.effort.patched) for each in self._variants]
            self._segments[key] = [self._found(each) for each in (*plain, *patched) if each is not None]
        return self._segments[key]

    def _tries(self, found: _Found) -> list[_Try]:
        """Return the candidates for a cascade."""
        if not found.tries:
            least = self._cycles_in_one_round(found.segment)
            found.tries = [
                _Try(way, self._least_of(found, way), least + self._cycles_of_rounds(found.segment, way))
                for way in dict.fromkeys(self._ways(found.segment))
            ]
        return found.tries

    def _found(self, made: Segment) -> _Found:
        return _Found(made, made.least_bytes(self._window_rows[id(made.network)]))

    def _ways(self, found: Segment) -> Iterator[tuple[int, int, bool]]:
        calls = found.network.calls
        every = all_ways(found) if self._everything and found.network is self.network else ()
        for pace, height, even in itertools.chain(ways(found, self.effort), every):
            if calls[pace].rows <= MOST_ROUNDS * height:
                yield pace, height, even

    def _least_of(self, found: _Found, way: tuple[int, int, bool]) -> int:
        pace, height, even = way
        windows = self._window_rows[id(found.segment.network)]
        return found.segment.least_bytes(found.segment.held_at_once(pace, height, even, windows))

    def _cycles_in_one_round(self, found: Segment) -> int:
        return sum(self._least[id(found.network.calls[position])] for position in found.positions)

    def _cycles_of_rounds(self, found: Segment, way: tuple[int, int, bool]) -> int:
        """What issuing the call that sets the pace costs in all rounds but one."""
        pace, height, _ = way
        call = found.network.calls[pace]
        each = 1 if call.patch is None else len(call.patch.pieces)
        return (-(-call.rows // height) - 1) * each * self.network.issue_cycles

    def least_cycles(self, first: int, end: int) -> int:
        """No cascade of calls [first, end) takes fewer, in patches or not."""
        # All at once is no faster than call by call, but where rows are left out.
        issued = end - first + (self._left_out[end] == self._left_out[first])
        return self._compute[end] - self._compute[first] + issued * self.network.issue_cycles

    def _least_computed(self) -> list[int]:
        """For each call what it computes for at least, beside one issue for each call of a cascade and one more."""
        issue = self.network.issue_cycles
        cycles = [self._least[id(each)] - issue for each in self.network.calls]
        for each in self._variants:
            for chain in each.chains:
                last = chain.end - 1
                spent = self._least[id(each.network.calls[each.at[last]])] - (chain.end - chain.first + 1) * issue
                cycles[last] = min(cycles[last], spent - sum(cycles[chain.first : last]))
        return cycles

    def _least_of_calls(self, rows: Sequence[int]) -> dict[int, int]:
        """For each call, of all variants, what it takes at least in one round; ``rows`` are those of ``rows_computed``."""
        target = self.network.target
        least = {}
        for call, count in zip(self.network.calls, rows, strict=True):
            spent = least_compute_cycles(call.call, target, count) + self.network.issue_cycles
            least[id(call)] = spent if count else 0
        for each in self._variants:
            for chain in each.chains:
                made = each.network.calls[each.at[chain.end - 1]]
                least[id(made)] = chain.patch.least_cycles(rows[chain.end - 1], target)
        return least

    def _ends_at(self, end: int) -> Iterator[int]:
        """Where cascades that end at ``end`` may begin, the shortest first."""
        for first in range(end - 1, max(-1, end - self.effort.longest - 1), -1):
            if not self._computed[first]:
                return  # its readers see padding alone: whole, so that each call runs
            yield first
            if first in self.cuts or not self.network.calls[first].by_rows:
                return

    def plan(self, budget: int) -> Plan | None:
        """The plan of the fewest cycles that takes at most ``budget`` bytes, or None where there is none."""
        count = len(self.network.calls)
        wholes = [self.whole(position) for position in range(count)]
        best: list[_Way | None] = [_Way(0, 0, None, -1), *[None] * count]
        for end in range(1, count + 1):
            if wholes[end - 1].peak_bytes <= budget:
                _improve(best, end - 1, end, wholes[end - 1])
            for first in self._ends_at(end):
                start, there = best[first], best[end]
                if start is None:
                    continue
                if there is not None and start.cycles + self.least_cycles(first, end) > there.cycles:
                    continue
                for found, each in self._tries_of(first, end, budget):
                    there = best[end]
                    part = each.evaluated(found, NO_LIMIT if there is None else there.cycles - start.cycles)
                    if part is not None and part.peak_bytes <= budget:
                        _improve(best, first, end, part)
        return _plan(best)

    def least(self) -> Plan:
        """The plan of the least memory."""
        if self._smallest is None:
            self._smallest = self.plan(least_peak(self.network, self._ends_at, self._bounded))
        assert self._smallest is not None
        return self._smallest

    def floor(self) -> int:
        """Return a lower bound of the arena of all schedules, in bytes; takes no search."""
        return floor_bytes(self.network, self._ends_at)

    def _bounded(self, first: int, end: int) -> list[Bounded]:
        """Return the candidates for calls [first, end), each with a memory bound that is refined step by step."""
        whole: list[Bounded] = [(self.whole(first).peak_bytes, None)] if end == first + 1 else []
        if first not in self._ends_at(end):
            return whole

        def tries(found: _Found) -> list[Bounded]:
            return [
                (max(each.least_bytes, found.least_bytes), partial(peak, found.segment, each))
                for each in self._tries(found)
            ]

        def peak(segment: Segment, each: _Try) -> list[Bounded]:
            made = each.evaluated(segment, NO_LIMIT)
            assert made is not None
            return [(made.peak_bytes, None)]

        return [*whole, *((found.least_bytes, partial(tries, found)) for found in self._runs(first, end))]


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
