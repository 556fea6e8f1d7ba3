# SPDX-License-Identifier: BSD-3-Clause
"""Search the fastest plan of a network for a budget: which runs of calls are cascades, and with which stripe heights.

A plan cuts the calls, in their order, into segments. A segment is a call computed whole, or a cascade. A cascade may
have a single call, whose output stripes may then be written over input rows that it has read. The memory of a plan is
the maximum over its segments, and its cycles are their sum. The best plan for a budget is therefore a shortest path
over the segments that fit; it is exact among the candidates. The candidates do not depend on the budget, so that a
larger budget never costs more cycles.

Example: three calls a, b and c, with (KiB, cycles) of each segment, and a budget of 6 KiB::

    a (4, 10)   b (9, 10)   c (5, 10)   ab (6, 24)   bc (7, 21)   abc (3, 40)

Cut 1 (behind a) is reached in 10 cycles. Cut 2 is reached only by ab, in 24 cycles, since b takes 9 KiB. Cut 3 is
reached from cut 2 in 24 + 10 = 34 cycles, from cut 1 not at all (7 KiB), and from cut 0 in 40. The best plan is ab, c.

A candidate is evaluated only if cheap lower bounds of its memory and its cycles allow it to improve the path.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, groupby

from openneutron.compiler.cost.cycles import least_compute_cycles
from openneutron.compiler.search.cascade.network import Network, Segment, rows_computed, segment, window_rows
from openneutron.compiler.search.cascade.patches import PatchedNetwork, patched_networks
from openneutron.compiler.search.cascade.stripes import (
    Paced,
    Pacing,
    Stripes,
    evaluate,
    evaluated,
    one_after_the_other,
    rounds,
)
from openneutron.compiler.search.tuning import DEFAULT, Effort

Bounded = tuple[int, Callable[[], "list[Bounded]"] | None]
"""A lower bound in bytes of a set of candidates, and a function that divides the set and returns the bounds of its
subsets. The function is None if the bound is exact."""


@dataclass(slots=True)
class Edge:
    """All candidates for the calls between cut ``first`` and cut ``end``, as one edge of a graph whose nodes are cuts.

    The length of the edge is the least memory of its candidates. Candidates are evaluated only as far as necessary.
    """

    first: int
    end: int
    _parts: list[tuple[int, int, Callable[[], list[Bounded]] | None]] = field(default_factory=list)
    _serial: Iterator[int] = field(default_factory=itertools.count)

    def add(self, parts: Sequence[Bounded]) -> None:
        for bound, refine in parts:
            heapq.heappush(self._parts, (bound, next(self._serial), refine))

    @property
    def bound(self) -> int | None:
        """Return a lower bound of the edge's length in bytes; None if there is no candidate."""
        return self._parts[0][0] if self._parts else None

    @property
    def is_exact(self) -> bool:
        return bool(self._parts) and self._parts[0][2] is None

    def refine(self) -> None:
        """Replace the smallest lower bound of the edge by the bounds of its subsets."""
        bound, _, refine = heapq.heappop(self._parts)
        assert refine is not None
        parts = refine()
        assert all(each >= bound for each, _ in parts), "a bound is above what it bounds"
        self.add(parts)


def least_peak(
    network: Network, starts_of: Callable[[int], Iterator[int]], parts: Callable[[int, int], list[Bounded]]
) -> int:
    """Return the memory in bytes of the schedule with the least memory.

    The memory of a schedule is the maximum over its parts. So the schedule with the least memory is a shortest path
    over the cuts between calls, where the length of a path is that of its longest edge. An edge is expensive to
    evaluate, but has cheap lower bounds: from the tensors at its ends, from a cascade, from one candidate for a
    cascade. The search evaluates an edge only if its bound is the smallest one left (Dijkstra's algorithm with lazy
    edges).

    ``starts_of`` yields the possible first calls of a cascade that ends at a cut. ``parts`` returns the bounds of the
    candidates for calls [first, end).
    """
    count = len(network.calls)
    ends = _ends(count, starts_of)
    boundary = boundary_bytes(network, ends)
    floor = _least_path(ends, boundary)
    serial = itertools.count()
    queue: list[tuple[int, bool, int, int, int, Edge]] = []
    reached: dict[int, int] = {}

    def push(edge: Edge) -> None:
        if edge.bound is not None:
            # Order equal bounds: exact ones first, then the furthest along, then the shortest.
            key = max(reached[edge.first], edge.bound)
            heapq.heappush(queue, (key, not edge.is_exact, -edge.first, edge.end, next(serial), edge))

    def reach(cut: int, peak: int) -> None:
        reached[cut] = peak
        for end in ends[cut] if cut < count else ():
            if end not in reached:
                edge = Edge(cut, end)
                edge.add([(boundary[cut, end], lambda first=cut, end=end: parts(first, end))])  # type: ignore[misc]
                push(edge)

    reach(0, floor)
    while count not in reached:
        key, refined, _, end, _, edge = heapq.heappop(queue)
        if end in reached:
            continue
        if not refined:
            reach(end, key)
        else:
            edge.refine()
            push(edge)
    return reached[count]


def floor_bytes(network: Network, starts_of: Callable[[int], Iterator[int]]) -> int:
    """Return a lower bound of the arena of all schedules in bytes. It counts the tensors that are live at the ends of
    the schedule's parts."""
    ends = _ends(len(network.calls), starts_of)
    return _least_path(ends, boundary_bytes(network, ends))


def _ends(count: int, starts_of: Callable[[int], Iterator[int]]) -> list[list[int]]:
    """Return for each call the cuts at which a part can end that begins with this call."""
    ends: list[list[int]] = [[] for _ in range(count)]
    for end in range(1, count + 1):
        for first in {end - 1, *starts_of(end)}:
            ends[first].append(end)
    return ends


def boundary_bytes(network: Network, ends: Sequence[Sequence[int]]) -> dict[tuple[int, int], int]:
    """Return a lower bound of the memory, in bytes, of each run of calls [first, end). ``ends`` has the possible ends
    for each first call.

    The bound is the sum of the tensors that are live throughout and of the larger of two sums: the tensors that are
    last used in the run, and the tensors that the run defines for later calls.
    """
    pieces = sorted(network.pieces.values(), key=lambda piece: piece.first)
    found = {}
    for first, each in enumerate(ends):
        before = [(piece.last, piece.size) for piece in pieces if piece.first < first <= piece.last]
        after = [(piece.first, piece.last, piece.size) for piece in pieces if piece.first >= first]
        for end in each:
            through = sum(size for last, size in before if last >= end)
            dying = sum(size for last, size in before if last < end)
            made = sum(size for begin, last, size in itertools.takewhile(lambda p: p[0] < end, after) if last >= end)  # noqa: B023
            found[first, end] = through + max(dying, made)
    return found


def _least_path(ends: Sequence[Sequence[int]], bound: dict[tuple[int, int], int]) -> int:
    """Return the minimum over all paths through the cuts of the largest bound on the path."""
    peaks = [0] + [1 << 60] * len(ends)
    for first, each in enumerate(ends):
        for end in each:
            peaks[end] = min(peaks[end], max(peaks[first], bound[first, end]))
    return peaks[-1]


NO_LIMIT = 1 << 60

MOST_ROUNDS = 4096
"""The approximate largest number of iterations of a cascade.

A loop of microcode repeats at most 65,535 times, and the driver checks at most 2^20 windows of a program
(docs/microcode.md). More iterations would save memory only in sequences of many thousand steps.
"""

KEPT_ROUNDS = 1024
"""The largest number of iterations for which the progress of the calls is cached for longer segments. Longer progresses
would take more memory than they save time."""

EVEN = 4
"""The smallest number of iterations for which even iterations (``rounds``) are tried too."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The segments of a schedule in order, each with its stripes.

    ``peak_bytes`` is an estimate until all buffers have addresses. It includes the constants that are copied to SRAM;
    ``tensor_bytes`` does not.
    """

    parts: tuple[Stripes, ...]
    peak_bytes: int
    cycles: int

    @property
    def tensor_bytes(self) -> int:
        """Return the largest number of bytes of tensors that any segment has live."""
        return max((part.peak_bytes - part.constants_bytes for part in self.parts), default=0)


def candidates(found: Segment, effort: Effort) -> Iterator[Pacing]:
    """Yield the pacings that are tried for a cascade. A pacing has a call that computes a fixed number of rows in
    each iteration (the pacing call), this number (the stripe height), and whether iterations are even.

    The last call is tried as pacing call with every number of stripes of the effort. Calls with another number of
    rows are tried too. Example: behind a stride of 2, one row takes two rows of the call before the stride, so that
    this call allows stripe heights in between.
    """
    calls = found.network.calls
    first, last = calls[found.first].rows, calls[found.end - 1].rows
    alone = found.end - found.first == 1 and calls[found.first].patch is None
    for height in dict.fromkeys(-(-last // n) for n in (*effort.stripes, min(last, MOST_ROUNDS)) if n <= last):
        if height < last or not alone:
            yield Pacing(found.end - 1, height, False)
        if height * EVEN <= last and not alone:
            yield Pacing(found.end - 1, height, True)
    if first > last:
        yield from (Pacing(found.first, height, True) for height in effort.fine if height * last < first * 2)
    # Of calls in between with as many rows one is enough.
    inner = {calls[position].rows: position for position in range(found.end - 2, found.first, -1)}
    for rows, position in {**inner, first: found.first}.items():
        if rows != last:
            yield from _by_height(position, rows, effort)


def _by_height(position: int, rows: int, effort: Effort) -> Iterator[Pacing]:
    """Yield the pacings of a call with ``rows`` rows: every stripe height of the effort, with even iterations and
    without."""
    for height in dict.fromkeys((*effort.fine, *(-(-rows // n) for n in effort.stripes))):
        if height < rows:
            yield Pacing(position, height, False)
            yield Pacing(position, height, True)


def all_candidates(found: Segment) -> Iterator[Pacing]:
    """Yield every pacing of a cascade: each call with each stripe height, with even iterations and without."""
    calls = found.network.calls
    if found.end - found.first == 1:
        yield from (Pacing(found.first, height, False) for height in range(1, calls[found.first].rows))
        return
    for position in reversed(found.positions):
        yield from (Pacing(position, h, even) for h in range(1, calls[position].rows + 1) for even in (False, True))


def count_of_all(network: Network) -> int:
    """Return the approximate number of ``all_candidates`` in all cascades of a network."""
    count = 0
    for by_rows, run in groupby(network.calls, key=lambda call: call.by_rows):
        rows = [call.rows for call in run] if by_rows else []
        count += sum(2 * each * (n + 1) * (len(rows) - n) for n, each in enumerate(rows))
    return count


@dataclass(slots=True)
class _Candidate:
    """A candidate for a segment: lower bounds of its memory and cycles, and its evaluation (``made``) once that is
    needed.

    Until ``bound_bytes`` is called, the bound of the memory is that of the whole segment.
    """

    pacing: Pacing
    least_bytes: int
    least_cycles: int
    made: Stripes | None = None
    _is_bounded: bool = False

    def bound_bytes(self, segment: Segment, window_rows: Mapping[str, int]) -> int:
        """Return a lower bound of the memory in bytes. ``window_rows``: as for ``Segment.least_bytes``."""
        if not self._is_bounded:
            self._is_bounded = True
            self.least_bytes = segment.least_bytes(window_rows, segment.held_at_once(*self.pacing))
        return self.least_bytes

    def evaluated(self, segment: Segment, most_cycles: int, paced: Callable[[], Paced]) -> Stripes | None:
        """Return the evaluated candidate; None if it takes more than ``most_cycles``.

        ``paced`` returns the progress of the calls before the segment's end, as far as it is known.
        """
        if self.made is None and self.least_cycles <= most_cycles:
            known = paced()
            known.reaching(segment)
            cycles = known.cycles[segment.first]
            assert cycles >= self.least_cycles, "a bound is above what it bounds"
            self.least_cycles = cycles
            if cycles <= most_cycles:
                done = rounds(segment, *self.pacing)
                self.made = one_after_the_other(evaluated(segment, self.pacing, done, cycles), done)
                assert self.made.peak_bytes >= self.least_bytes, "a bound is above what it bounds"
                self._is_bounded, self.least_bytes = True, self.made.peak_bytes
        return self.made if self.least_cycles <= most_cycles else None


@dataclass(slots=True)
class _Cascade:
    """A segment, a lower bound of its memory, and its candidates, which are listed on demand.

    ``skips_rows`` states whether the segment can skip rows that no call reads. Only then is a candidate with a single
    iteration useful. In such a candidate, the tensors of the segment need not all be live at once.
    """

    segment: Segment
    least_bytes: int
    skips_rows: bool
    candidates: list[_Candidate] = field(default_factory=list)


@dataclass(slots=True)
class PlanSearch:
    """The search for plans of a network. Plans and evaluated candidates are cached for later searches with other
    budgets.

    A call of ``cuts`` can only be the first call of a cascade.
    """

    network: Network
    effort: Effort = DEFAULT
    cuts: frozenset[int] = frozenset()
    _window_rows: dict[int, dict[str, int]] = field(init=False)
    _least: dict[int, int] = field(init=False)
    _compute: list[int] = field(init=False)
    _computed: list[int] = field(init=False)
    _unread: list[int] = field(init=False)
    _smallest: Plan | None = None
    _patched: list[PatchedNetwork] = field(init=False)
    _everything: bool = field(init=False)
    _segments: dict[tuple[int, int], list[_Cascade]] = field(default_factory=dict)
    _wholes: dict[int, Stripes] = field(default_factory=dict)
    _plans: dict[int, Plan | None] = field(default_factory=dict)
    _paced: dict[tuple[int, int, Pacing], Paced] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Every piece reads its chain's constants anew: no patches where they are copied.
        fetched = any(each.constants_bytes for each in self.network.calls)
        self._patched = [] if fetched else patched_networks(self.network, self.effort)
        networks = (self.network, *(each.network for each in self._patched))
        self._window_rows = {id(each): window_rows(each) for each in networks}
        self._computed = rows_computed(self.network)
        unread = (n < call.rows for n, call in zip(self._computed, self.network.calls, strict=True))
        self._unread = [0, *accumulate(unread)]
        self._least = self._least_of_calls(self._computed)
        self._everything = count_of_all(self.network) <= self.effort.everything
        self._compute = [0, *accumulate(self._least_computed())]

    def whole(self, position: int) -> Stripes:
        """Return the candidate in which the call at ``position`` is computed whole."""
        found = self._wholes.get(position)
        if found is None:
            alone = segment(self.network, position, position + 1)
            assert alone is not None
            found = evaluate(alone, position, max(1, self.network.calls[position].rows))
            self._wholes[position] = found
        return found

    def _cascades(self, first: int, end: int) -> list[_Cascade]:
        """Return the cascades that calls [first, end) can be: row by row, and in patches."""
        key = (first, end)
        if key not in self._segments:
            plain = [segment(self.network, first, end)] if self.network.calls[first].by_rows else []
            patched = [each.segment(first, end, self.effort.patched) for each in self._patched]
            skips = self._unread[end] > self._unread[first]
            windows = self._window_rows
            self._segments[key] = [
                _Cascade(each, each.ends_bytes if skips else each.least_bytes(windows[id(each.network)]), skips)
                for each in (*plain, *patched)
                if each is not None
            ]
        return self._segments[key]

    def _candidates(self, found: _Cascade) -> list[_Candidate]:
        if not found.candidates:
            inside = found.segment
            least = sum(self._least[id(inside.network.calls[position])] for position in inside.positions)
            for each in dict.fromkeys(self._pacings(inside)):
                cycles = least + self._cycles_of_rounds(inside, each)
                is_bounded = found.skips_rows and each.height >= inside.network.calls[each.pace].rows
                found.candidates.append(_Candidate(each, found.least_bytes, cycles, None, is_bounded))
        return found.candidates

    def _pacings(self, found: Segment) -> Iterator[Pacing]:
        calls = found.network.calls
        every = all_candidates(found) if self._everything and found.network is self.network else ()
        for each in itertools.chain(candidates(found, self.effort), every):
            if calls[each.pace].rows <= MOST_ROUNDS * each.height:
                yield each

    def _cycles_of_rounds(self, found: Segment, pacing: Pacing) -> int:
        """Return the dispatch overhead of the pacing call for all iterations after the first one, in cycles."""
        pace, height, _ = pacing
        call = found.network.calls[pace]
        each = 1 if call.patch is None else len(call.patch.pieces)
        return (-(-call.rows // height) - 1) * each * call.issue_cycles

    def least_cycles(self, first: int, end: int, is_cascade: bool = True) -> int:
        """Return a lower bound of the cycles of all cascades of calls [first, end), in patches or not.

        With ``is_cascade`` False, the bound also holds if the calls are computed one by one.
        """
        # A cascade in one iteration is no faster than call by call, unless it has an unread region.
        issued = end - first + (is_cascade and self._unread[end] == self._unread[first])
        return self._compute[end] - self._compute[first] + issued * self.network.issue_cycles

    def _least_computed(self) -> list[int]:
        """Return for each call its part of a lower bound, in cycles. The sum of the parts of calls [first, end), plus
        one dispatch for each of them, is a lower bound of the cycles of each cascade of these calls.

        A chain in patches may take fewer cycles than its calls one by one. The part of the chain's last call is then
        reduced by the difference, and may be negative.
        """
        issue = self.network.issue_cycles
        cycles = [self._least[id(each)] - issue for each in self.network.calls]
        for each in self._patched:
            for chain in each.chains:
                last = chain.end - 1
                spent = self._least[id(each.network.calls[each.at[last]])] - (chain.end - chain.first + 1) * issue
                cycles[last] = min(cycles[last], spent - sum(cycles[chain.first : last]))
        return cycles

    def _least_of_calls(self, rows: Sequence[int]) -> dict[int, int]:
        """Return, for each call of all networks, a lower bound of its cycles if a single iteration computes it.
        ``rows`` is the result of ``rows_computed``."""
        target = self.network.target
        least = {}
        for call, count in zip(self.network.calls, rows, strict=True):
            spent = least_compute_cycles(call.call, target, count) + self.network.issue_cycles
            least[id(call)] = spent if count else 0
        for each in self._patched:
            for chain in each.chains:
                made = each.network.calls[each.at[chain.end - 1]]
                least[id(made)] = chain.patch.least_cycles(rows[chain.end - 1], target)
        return least

    def _ends_at(self, end: int) -> Iterator[int]:
        """Yield the first calls of cascades that end at ``end``, the shortest cascade first."""
        for first in range(end - 1, max(-1, end - self.effort.longest - 1), -1):
            if not self._computed[first]:
                return  # all its rows are unread, and each call must run: it is computed whole
            yield first
            if first in self.cuts or not self.network.calls[first].by_rows:
                return

    def plan(self, budget: int) -> Plan | None:
        """Return the plan with the fewest cycles that takes at most ``budget`` bytes; None if there is none."""
        if budget not in self._plans:
            self._plans[budget] = self._shortest_path(budget)
        return self._plans[budget]

    def _shortest_path(self, budget: int) -> Plan | None:
        count = len(self.network.calls)
        wholes = [self.whole(position) for position in range(count)]
        best: list[_Path | None] = [_Path(0, 0, None, -1), *[None] * count]
        for end in range(1, count + 1):
            if wholes[end - 1].peak_bytes <= budget:
                _improve(best, end - 1, end, wholes[end - 1])
            self._paced.clear()
            for first in self._ends_at(end):
                start, there = best[first], best[end]
                if start is None:
                    continue
                if there is not None and start.cycles + self.least_cycles(first, end) > there.cycles:
                    continue
                for found in self._cascades(first, end):
                    if found.least_bytes <= budget:
                        self._improve_by(best, found, budget, first, end)
        return _plan(best)

    def _improve_by(self, best: list[_Path | None], found: _Cascade, budget: int, first: int, end: int) -> None:
        """Improve the best path to cut ``end`` by candidates for calls [first, end) that fit the budget."""
        start, inside = best[first], found.segment
        assert start is not None
        for each in self._candidates(found):
            there = best[end]
            most = NO_LIMIT if there is None else there.cycles - start.cycles
            if each.least_cycles > most or self._bound_bytes(inside, each) > budget:
                continue
            part = each.evaluated(inside, most, partial(self._paced_as, inside, each.pacing))
            if part is not None and part.peak_bytes <= budget:
                _improve(best, first, end, part)

    def _bound_bytes(self, inside: Segment, each: _Candidate) -> int:
        return each.bound_bytes(inside, self._window_rows[id(inside.network)])

    def _paced_as(self, inside: Segment, pacing: Pacing) -> Paced:
        """Return the progress of the calls with this pacing, as far as it is known from shorter segments with the same
        end."""
        key = (id(inside.network), inside.end, pacing)
        found = self._paced.get(key)
        if found is None:
            found = Paced.of(inside, pacing)
            if found.most <= KEPT_ROUNDS:
                self._paced[key] = found
        return found

    def least(self) -> Plan:
        """Return the plan of the least memory."""
        if self._smallest is None:
            self._smallest = self.plan(least_peak(self.network, self._ends_at, self._bounded))
        assert self._smallest is not None
        return self._smallest

    def floor(self) -> int:
        """Return a lower bound of the arena of all schedules in bytes, without a search."""
        return floor_bytes(self.network, self._ends_at)

    def _bounded(self, first: int, end: int) -> list[Bounded]:
        """Return lower bounds of the memory of the candidates for calls [first, end), which ``Edge`` refines step by
        step."""
        whole: list[Bounded] = [(self.whole(first).peak_bytes, None)] if end == first + 1 else []
        if first not in self._ends_at(end):
            return whole

        def each_candidate(found: _Cascade) -> list[Bounded]:
            return [
                (max(self._bound_bytes(found.segment, each), found.least_bytes), partial(peak, found.segment, each))
                for each in self._candidates(found)
            ]

        def peak(segment: Segment, each: _Candidate) -> list[Bounded]:
            made = each.evaluated(segment, NO_LIMIT, partial(Paced.of, segment, each.pacing))
            assert made is not None
            return [(made.peak_bytes, None)]

        return [*whole, *((found.least_bytes, partial(each_candidate, found)) for found in self._cascades(first, end))]


@dataclass(frozen=True, slots=True)
class _Path:
    """The best path to a cut: its cycles and memory, its last segment, and the cut at which that segment begins."""

    cycles: int
    peak_bytes: int
    part: Stripes | None
    first: int


def _improve(best: list[_Path | None], first: int, end: int, part: Stripes) -> None:
    start, there = best[first], best[end]
    if start is None:
        return
    path = _Path(start.cycles + part.cycles, max(start.peak_bytes, part.peak_bytes), part, first)
    if there is None or (path.cycles, path.peak_bytes) < (there.cycles, there.peak_bytes):
        best[end] = path


def _plan(best: list[_Path | None]) -> Plan | None:
    at = best[-1]
    if at is None:
        return None
    cycles, peak = at.cycles, at.peak_bytes
    parts = []
    while at is not None and at.part is not None:
        parts.append(at.part)
        at = best[at.first]
    return Plan(tuple(reversed(parts)), peak, cycles)
