# SPDX-License-Identifier: BSD-3-Clause
"""Find the schedule of the least memory by best-first search, and evaluate as few cascade candidates as the search
allows.

The memory of a schedule is the maximum over its parts. The minimum over all schedules is therefore a shortest path over
the cuts between calls, where the length of a path is its largest edge. Evaluating an edge is slow, but each edge has
cheap lower bounds: from the tensors at its ends, from a cascade, from one candidate for a cascade. The search evaluates
an edge only when its bound is the smallest that is left (Dijkstra's algorithm with lazy edges), so it evaluates no edge
whose bound is above the result.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from openneutron.compiler.search.cascade.network import Network

Bounded = tuple[int, Callable[[], "list[Bounded]"] | None]
"""A lower bound in bytes, and a function that refines it into the bounds of its parts; None where the bound is exact."""


@dataclass(slots=True)
class Edge:
    """An edge from cut ``first`` to cut ``end``: the minimum over its parts, each evaluated as far as necessary."""

    first: int
    end: int
    _parts: list[tuple[int, int, Callable[[], list[Bounded]] | None]] = field(default_factory=list)
    _serial: Iterator[int] = field(default_factory=itertools.count)

    def add(self, parts: Sequence[Bounded]) -> None:
        for bound, refine in parts:
            heapq.heappush(self._parts, (bound, next(self._serial), refine))

    @property
    def bound(self) -> int | None:
        """Return a lower bound of the edge in bytes; None where no candidate is feasible."""
        return self._parts[0][0] if self._parts else None

    @property
    def is_exact(self) -> bool:
        return bool(self._parts) and self._parts[0][2] is None

    def refine(self) -> None:
        """Replace the smallest bound by the bounds of its parts."""
        bound, _, refine = heapq.heappop(self._parts)
        assert refine is not None
        parts = refine()
        assert all(each >= bound for each, _ in parts), "a bound is above what it bounds"
        self.add(parts)


def least_peak(
    network: Network, starts_of: Callable[[int], Iterator[int]], parts: Callable[[int, int], list[Bounded]]
) -> int:
    """Return the bytes of the schedule with the least memory.

    ``starts_of``: for the end of a cascade its possible first calls. ``parts``: the bounds of the candidates for calls
    [first, end).
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
    """Return a lower bound of the arena of all schedules, in bytes: the tensors live at the ends of their parts."""
    ends = _ends(len(network.calls), starts_of)
    return _least_path(ends, boundary_bytes(network, ends))


def _ends(count: int, starts_of: Callable[[int], Iterator[int]]) -> list[list[int]]:
    """Return for each call the possible ends of the parts that begin with the call."""
    ends: list[list[int]] = [[] for _ in range(count)]
    for end in range(1, count + 1):
        for first in {end - 1, *starts_of(end)}:
            ends[first].append(end)
    return ends


def boundary_bytes(network: Network, ends: Sequence[Sequence[int]]) -> dict[tuple[int, int], int]:
    """Return a lower bound in bytes for each run of calls [first, end).

    The bound adds the tensors that are live throughout to the larger of two sums: the tensors last used in the run, and
    the tensors defined in the run for later calls. ``ends``: for each first call the ends.
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
