# SPDX-License-Identifier: BSD-3-Clause
"""Prove a lower bound of the bytes of tensors that any plan in tiles copies, over all choices that the search for tiles has.

A plan divides the calls, in their order, into segments. A tensor that is live between two segments either stays in the memory of the NPU,
whole, or is stored once and loaded by each segment that reads it. ``least_moved_bytes`` goes through all segments and all sets of tensors
that stay, without the beam of ``search``, and relaxes two things, so that no plan is below its result:

* Memory. A segment takes at least its constants, the tensors that stay whole, and of every other tensor the rows that one row of a reader
  needs. A plan takes more, since stripes have several rows and transfers have a second buffer.
* Traffic. A segment loads at least the largest part of an external tensor that one of its calls reads. A plan may load several parts.

Proof that dropped states are needless. State A = (cut, stays, bytes) replaces B of the same cut where B keeps all tensors that A keeps, and A's
bytes, with the bytes of one load by each later reader of every tensor that only B keeps, are at most B's bytes. Take any completion of B. With
A the same segments are possible: a tensor that only B keeps is then external, and its rows take a part of the memory that it takes in B; like
a tensor that stays, rows whose last reader is in the segment share memory with results. This adds at most one load for each reader, and a
store for a tensor with a writer behind the cut, so that A's completion copies no more than B's. (A state that keeps more than B may leave a
later segment too little memory, so that it never replaces B.) A state is also dropped where its bytes, and the bytes that any completion
copies, reach those of a plan that is known: the result is then that plan's, or smaller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations

from openneutron.compiler.search.cascade.network import Piece
from openneutron.compiler.search.tiles.fit import Searches, divided_for, sizes_up_to
from openneutron.compiler.search.tiles.search import TileSearch
from openneutron.compiler.select.select import Selection
from openneutron.targets import Target

Stays = frozenset[str]


def least_moved_bytes(selected: Sequence[Selection], target: Target, budget: int, most: int) -> int:
    """Return a lower bound of the bytes of tensors that a schedule of ``TileFit`` could move in ``budget`` bytes of NPU memory.

    The bound is one over the choices of the search; for a graph of more than few calls over those of the first selection.
    Constants are not counted. ``most``: the bytes of a schedule that is known.
    """
    searches = Searches.of(selected, target)
    are_few = searches.are_few
    made: list[TileSearch] = []
    for size in (budget, *(sizes_up_to(budget) if are_few else ())):
        for given in chain.from_iterable(searches.lists if are_few else searches.lists[:1]):
            made += [searches.search(given, divided) for divided in divided_for(given, size)]
    return min(LeastTraffic(search, budget, most).bound() for search in {id(each): each for each in made}.values())


@dataclass(frozen=True, slots=True)
class _Span:
    """Calls [first, end) and the tensors that they touch.

    ``read``: the tensors defined before, with the bytes of one load; ``rows``: of each touched tensor the bytes of the rows that one row of a
    reader needs; ``defined``: those for later segments; ``stored``: the bytes of a tensor's store, where all of its writers have run.
    """

    constants: int
    read: Mapping[str, int]
    rows: Mapping[str, int]
    inner: int
    defined: tuple[str, ...]
    stored: Mapping[str, int]


@dataclass(slots=True)
class _States:
    """The states of a cut that no other one replaces, by the tensors that stay."""

    later: Mapping[str, int]
    """By tensor, the most bytes that a completion copies for it where it does not stay: see ``LeastTraffic._later``."""
    known: dict[Stays, int] = field(default_factory=dict)

    def add(self, stays: Stays, moved: int) -> None:
        for other, there in self.known.items():
            if other <= stays and there + sum(self.later.get(name, 0) for name in stays - other) <= moved:
                return
        self.known = {
            other: there
            for other, there in self.known.items()
            if not stays <= other or moved + sum(self.later.get(name, 0) for name in other - stays) > there
        }
        self.known[stays] = moved


@dataclass(slots=True)
class LeastTraffic:
    """The bound for the calls of a search and a memory of ``budget`` bytes; ``most`` are the bytes of a plan that is known."""

    search: TileSearch
    budget: int
    most: int

    def bound(self) -> int:
        """Return the lower bound in bytes, without constants, which every plan copies once; at most ``most``."""
        count = len(self.search.streams.calls)
        states = [_States(self._later(cut)) for cut in range(count + 1)]
        states[0].add(frozenset(), 0)
        for end in range(1, count + 1):
            for first in self.search.firsts(end, self.budget):
                if states[first].known:
                    span = self._span(first, end)
                    for stays, moved in [*states[first].known.items()]:
                        for then, more in self._after(first, end, span, stays):
                            if moved + more + self._rest(end, then) < self.most:
                                states[end].add(then, moved + more)
        return min([self.most, *states[count].known.values()])

    def _pieces(self) -> Mapping[str, Piece]:
        return self.search.streams.base.pieces

    def _later(self, cut: int) -> dict[str, int]:
        """Return the bytes of one load for each reader behind a cut, and of a store where a writer is, by tensor that is live at the cut."""
        later: dict[str, int] = {}
        for position in range(cut, len(self.search.streams.calls)):
            for name, size in self.search.bytes_read[position].items():
                if self._pieces()[name].first < cut:
                    later[name] = later.get(name, 0) + size
        for name, piece in self._pieces().items():
            if piece.first < cut <= max(piece.writers, default=-1):
                later[name] = later.get(name, 0) + self._size(name)
        return later

    def _rest(self, cut: int, stays: Stays) -> int:
        """Return a lower bound of the bytes that any plan copies behind a cut: external tensors are loaded, and outputs stored, once."""
        total = 0
        for name, piece in self._pieces().items():
            if piece.first < cut and name not in stays:
                sizes = (self.search.bytes_read[at].get(name, 0) for at in piece.readers if at >= cut)
                total += max(sizes, default=0)
            if name in self.search.outside and piece.writers and max(piece.writers) >= cut:
                total += self._size(name)
        return total

    def _size(self, name: str) -> int:
        return self.search.streams.storages.storages[name].size_bytes

    def _span(self, first: int, end: int) -> _Span:
        streams, pieces = self.search.streams, self._pieces()
        calls = streams.base.calls[first:end]
        constants = calls[0].piece_bytes if end - first == 1 else sum(call.constants_bytes for call in calls)
        read: dict[str, int] = {}
        rows: dict[str, int] = {}
        for position in range(first, end):
            call = streams.base.calls[position]
            for name, size in self.search.bytes_read[position].items():
                if pieces[name].first < first:
                    read[name] = max(read.get(name, 0), size)
                rows[name] = max(rows.get(name, 0), self.search.window_bytes(position, name))
            rows.setdefault(call.output, 0)
        ends = [name for name in rows if pieces[name].first >= first]
        defined = [name for name in ends if pieces[name].last >= end]
        inner = sum(rows[name] for name in ends if pieces[name].last < end)
        stored = {
            name: self._size(name)
            for name in rows
            if first <= max(pieces[name].writers, default=-1) < end <= pieces[name].last
        }
        return _Span(constants, read, rows, inner, tuple(defined), stored)

    def _after(self, first: int, end: int, span: _Span, stays: Stays) -> Iterator[tuple[Stays, int]]:
        """Yield the tensors that stay behind a segment, for each choice, and the bytes that the segment copies."""
        pieces = self._pieces()
        loads = {name: size for name, size in span.read.items() if name not in stays}
        left = frozenset(name for name in stays if pieces[name].last >= end)
        through = sum(pieces[name].size for name in left)
        dying = sum(pieces[name].size for name in stays - left)
        dying += sum(span.rows[name] for name in loads if pieces[name].last < end)
        taken = span.constants + span.inner + through
        taken += sum(span.rows[name] for name in loads if pieces[name].last >= end)
        stored = sum(size for name, size in span.stored.items() if name not in stays and pieces[name].first < first)
        free = [name for name in span.defined if name not in self.search.outside]
        for count in range(len(free) + 1):
            for chosen in combinations(free, count):
                made = sum(pieces[name].size for name in chosen)
                rows = sum(span.rows[name] for name in span.defined if name not in chosen)
                if taken + max(dying, made) + rows > self.budget:
                    continue
                out = sum(span.stored.get(name, 0) for name in span.defined if name not in chosen)
                yield left | frozenset(chosen), sum(loads.values()) + stored + out
