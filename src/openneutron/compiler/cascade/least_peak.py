# SPDX-License-Identifier: BSD-3-Clause
"""The least memory of any plan that is searched, with as few ways to run a cascade evaluated as a best-first search allows.

The memory of a plan is the most that any of its parts takes. The least of all plans is therefore a shortest path over the cuts
between calls, whose length is the largest edge on it. Evaluating an edge is what takes time, and each has lower bounds that cost
little: of the tensors at its ends, of a cascade, of a way to run it. An edge is evaluated when its bound is the least of all that
are left (Dijkstra's algorithm with lazy edges), so that nothing above the result is.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from openneutron.compiler.cascade.network import Network

Bounded = tuple[int, Callable[[], "list[Bounded]"] | None]
"""A lower bound in bytes, and what refines it into the bounds of its parts; None where the bound is exact."""


@dataclass(slots=True)
class Edge:
    """A way from cut ``first`` to cut ``end``: the least of its parts, each as far evaluated as was necessary."""

    first: int
    end: int
    _parts: list[tuple[int, int, Callable[[], list[Bounded]] | None]] = field(default_factory=list)
    _serial: Iterator[int] = field(default_factory=itertools.count)

    def add(self, parts: Sequence[Bounded]) -> None:
        for bound, refine in parts:
            heapq.heappush(self._parts, (bound, next(self._serial), refine))

    @property
    def bound(self) -> int | None:
        """The bytes the edge takes at least; None where it can't be run."""
        return self._parts[0][0] if self._parts else None

    @property
    def is_exact(self) -> bool:
        return bool(self._parts) and self._parts[0][2] is None

    def refine(self) -> None:
        """Replace the least bound by those of what it stands for."""
        bound, _, refine = heapq.heappop(self._parts)
        assert refine is not None
        parts = refine()
        assert all(each >= bound for each, _ in parts), "a bound is above what it bounds"
        self.add(parts)


def least_peak(
    network: Network, starts_of: Callable[[int], Iterator[int]], parts: Callable[[int, int], list[Bounded]]
) -> int:
    """Return the bytes of the plan of the least memory.

    ``starts_of``: for the end of a cascade where it may begin. ``parts``: the bounds of what runs calls [first, end).
    """
    count = len(network.calls)
    ends = _ends(count, starts_of)
    border = border_bytes(network, ends)
    floor = _least_way(ends, border)
    serial = itertools.count()
    queue: list[tuple[int, bool, int, int, int, Edge]] = []
    reached: dict[int, int] = {}

    def push(edge: Edge) -> None:
        if edge.bound is not None:
            # Of equal ones those that need no evaluation, then those furthest on, the shortest first.
            key = max(reached[edge.first], edge.bound)
            heapq.heappush(queue, (key, not edge.is_exact, -edge.first, edge.end, next(serial), edge))

    def reach(cut: int, peak: int) -> None:
        reached[cut] = peak
        for end in ends[cut] if cut < count else ():
            if end not in reached:
                edge = Edge(cut, end)
                edge.add([(border[cut, end], lambda first=cut, end=end: parts(first, end))])  # type: ignore[misc]
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
    """Return bytes that no arena of any plan stays below: those live at the ends of its parts. See ``least_peak``."""
    ends = _ends(len(network.calls), starts_of)
    return _least_way(ends, border_bytes(network, ends))


def _ends(count: int, starts_of: Callable[[int], Iterator[int]]) -> list[list[int]]:
    """Return for each call where what begins with it may end."""
    ends: list[list[int]] = [[] for _ in range(count)]
    for end in range(1, count + 1):
        for first in {end - 1, *starts_of(end)}:
            ends[first].append(end)
    return ends


def border_bytes(network: Network, ends: Sequence[Sequence[int]]) -> dict[tuple[int, int], int]:
    """For each run of calls [first, end) the bytes of the tensors that pass it by, and of the larger of those it reads last and
    those it makes for later: no way to run it takes less. ``ends``: for each first call the ends."""
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


def _least_way(ends: Sequence[Sequence[int]], bound: dict[tuple[int, int], int]) -> int:
    """Return the least over all ways through the cuts of the largest bound on the way."""
    peaks = [0] + [1 << 60] * len(ends)
    for first, each in enumerate(ends):
        for end in each:
            peaks[end] = min(peaks[end], max(peaks[first], bound[first, end]))
    return peaks[-1]
