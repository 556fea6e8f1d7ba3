# SPDX-License-Identifier: BSD-3-Clause
"""Search the segments of a schedule in tiles, and the tensors that stay in the memory of the NPU between segments.

A tensor that is live between two segments is in the memory of the NPU whole, or in external memory. The segment that defines an external
tensor stores the tensor, and each segment that reads the tensor loads it. As in the search for cascades, the best plan is a shortest path
over cuts of the calls. A state of the path is a cut with the set of tensors that stay in the memory of the NPU. The best ``kept_states``
states of each cut are kept, so that the search is a heuristic. The cycles of a segment are the larger of two sums: that of its iterations,
with transfers in parallel to kernels, and that of all of its copies, including those of constants.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate

from openneutron.compiler.cost.cycles import fetch_cycles, least_compute_cycles
from openneutron.compiler.schedule.schedule import fetched_bytes
from openneutron.compiler.search.cascade.network import rows_computed
from openneutron.compiler.search.tiles.segments import Choices, Evaluated, Forms, Segments
from openneutron.compiler.search.tiles.streams import Streams
from openneutron.compiler.search.tiles.tuning import TUNING
from openneutron.compiler.select.calls import KernelCall
from openneutron.compiler.select.needs import row_needs

ENDLESS = 1 << 60

Part = tuple[int, int, frozenset[str], Evaluated]
"""A segment of a plan: calls [first, end), the storages in external memory, and the evaluated stripes."""


@dataclass(frozen=True, slots=True)
class TilePlan:
    """The segments of a schedule, in order. ``cycles`` are an estimate; ``external`` are the storages that any segment has externally."""

    parts: tuple[Part, ...]
    cycles: int
    external: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Path:
    # The best path to a state: its cycles, the tensors that stay, its last segment, and the path to that segment's start.
    cycles: int
    stays: frozenset[str]
    part: Part | None
    earlier: _Path | None


@dataclass(slots=True)
class TileSearch:
    """The search for plans in tiles of one list of calls.

    No cascade has a call of ``cuts`` other than as its first. ``segments`` has the segments that were evaluated; several searches may
    share them. No plan takes fewer than ``floor_bytes``.
    """

    streams: Streams
    cuts: frozenset[int] = frozenset()
    segments: Segments = field(default_factory=Segments)
    _choices: dict[tuple[int, int, frozenset[str]], tuple[Choices, Forms]] = field(default_factory=dict)
    _least: list[int] = field(init=False)
    bytes_read: list[dict[str, int]] = field(init=False)
    _constants: list[int] = field(init=False)
    outside: frozenset[str] = field(init=False)
    _touched: list[frozenset[str]] = field(init=False)
    _saving: list[int] = field(init=False)
    floor_bytes: int = field(init=False)
    _in_cascades: list[bool] = field(init=False)

    def __post_init__(self) -> None:
        calls, target, storages = self.streams.calls, self.streams.target, self.streams.storages
        least = (
            least_compute_cycles(call, target, call.views["output"].extents[1]) + self.streams.base.issue_cycles
            for call in calls
        )
        self._least = [0, *accumulate(least)]
        self._constants = [0, *accumulate(fetched_bytes(call, storages) for call in calls)]
        self.outside = frozenset(name for name, each in storages.storages.items() if each.is_border)
        self.bytes_read = [self._bytes_read(call) for call in calls]
        self._touched = [frozenset((row.output, *row.reads)) for row in self.streams.base.calls]
        # A cascade computes only rows that are read. A call of which no row is read must still run, so that it is computed whole.
        computed = rows_computed(self.streams.base)
        self._in_cascades = [row.by_rows and n > 0 for row, n in zip(self.streams.base.calls, computed, strict=True)]
        self._saving = [self._most_saved(cut) for cut in range(len(calls) + 1)]
        self.floor_bytes = max(map(self._least_bytes, range(len(calls))), default=0)

    def _most_saved(self, cut: int) -> int:
        """Return the cycles of all loads, after a cut, of tensors that are live there. This is an upper bound of what a state saves."""
        live = [piece for piece in self.streams.base.pieces.values() if piece.first < cut <= piece.last]
        sizes = [piece.size * sum(reader >= cut for reader in piece.readers) for piece in live]
        return fetch_cycles(sum(sizes), self.streams.target)

    def _least_bytes(self, position: int) -> int:
        """Return a lower bound of the memory of all segments that have this call, in bytes.

        The bound is the smallest piece of its constants and the rows of one tensor that a row of the output needs.
        """
        call = self.streams.base.calls[position]
        return call.piece_bytes + max((self.window_bytes(position, name) for name in call.reads), default=0)

    def window_bytes(self, position: int, name: str) -> int:
        """Return a lower bound of the bytes of a tensor that are in memory while a call computes a row, for a compact copy."""
        streams, most = self.streams, 0
        call, by_rows = streams.calls[position], streams.base.calls[position].by_rows
        for operand, view in call.views.items():
            if streams.storages.of[view.tensor] == name and call.reads(operand):
                needs, size, rows = row_needs(call, operand), view.distinct_bytes, view.extents[1]
                if needs is not None and by_rows:
                    held = max(end - first for first, end in zip(needs.low, needs.high[1:], strict=False))
                    size = min(size, max(0, held) * size // rows)
                most = max(most, size)
        return most

    def _bytes_read(self, call: KernelCall) -> dict[str, int]:
        """Return the bytes that a call reads of each storage: the maximum over the operands in that storage. Constants are left out."""
        read: dict[str, int] = {}
        for operand, view in call.views.items():
            storage = self.streams.storages[view.tensor]
            if storage.constant is None and call.reads(operand):
                read[storage.name] = max(read.get(storage.name, 0), view.distinct_bytes)
        return read

    def plan(self, budget: int) -> TilePlan | None:
        """Return the fastest plan that is found for ``budget`` bytes of NPU memory; None if no plan is found.

        The fastest states of a cut may leave too little memory for a later call. Where no plan is found, the path is therefore searched a
        second time, which also keeps for each cut the state of the fewest staying bytes.
        """
        if self.floor_bytes > budget:
            return None
        path = self._shortest(budget, False) or self._shortest(budget, True)
        return None if path is None else self._made(path)

    def _shortest(self, budget: int, keeps_smallest: bool) -> _Path | None:
        count = len(self.streams.calls)
        best: list[list[_Path]] = [[_Path(0, frozenset(), None, None)], *([] for _ in range(count))]
        for end in range(1, count + 1):
            found: dict[frozenset[str], _Path] = {}
            for first in self.firsts(end, budget):
                for path in best[first]:
                    for stays, part in self._parts(first, end, path, budget, found, keeps_smallest):
                        cycles = path.cycles + self._cycles(first, end, part[3])
                        known = found.get(stays)
                        if known is None or cycles < known.cycles:
                            found[stays] = _Path(cycles, stays, part, path)
            ranked = sorted(found.values(), key=lambda each: (each.cycles, sorted(each.stays)))
            rest = sorted(
                ranked[TUNING.kept_states :] if keeps_smallest else (), key=lambda each: self._staying_bytes(each.stays)
            )
            best[end] = [*ranked[: TUNING.kept_states], *rest[:1]]
        return best[count][0] if best[count] else None

    def _staying_bytes(self, stays: frozenset[str]) -> int:
        return sum(self.streams.base.pieces[name].size for name in stays)

    def _least_cycles(self, first: int, end: int, external: frozenset[str] | set[str]) -> int:
        """Return an estimate of the cycles of a segment with these storages in external memory. Few segments take fewer cycles.

        Kernels wait until the first stripe is loaded, and the last stripe is stored after all kernels. With n stripes, these two transfers
        take t / n cycles, where t are the cycles of all transfers. Each kernel is dispatched n times: with d cycles for a dispatch of all
        kernels, n - 1 further dispatches take d (n - 1). The sum is at least 2 sqrt(t d) - d.
        """
        pieces, moved = self.streams.base.pieces, 0
        for name in external:
            piece = pieces[name]
            if first <= piece.first:
                moved += piece.size if all(position < end for position in piece.writers) else 0
            else:
                moved += max(self.bytes_read[position].get(name, 0) for position in range(first, end))
        target = self.streams.target
        around, dispatch = fetch_cycles(moved, target), (end - first) * self.streams.base.issue_cycles
        if around > dispatch:
            around = 2 * math.isqrt(around * dispatch) - dispatch
        copied = fetch_cycles(moved + self._constants[end] - self._constants[first], target)
        hidden = fetch_cycles(moved, target) // TUNING.hidden_cycles
        return max(self._least[end] - self._least[first] + around, copied) + hidden

    def _made(self, last: _Path) -> TilePlan:
        cycles, parts = last.cycles, []
        external: set[str] = set()
        path: _Path | None = last
        while path is not None and path.part is not None:
            parts.append(path.part)
            external |= path.part[2]
            path = path.earlier
        return TilePlan(tuple(reversed(parts)), cycles, frozenset(external))

    def firsts(self, end: int, budget: int) -> Iterator[int]:
        """Yield the first calls of the segments that may end at ``end``, the shortest segment first."""
        yield end - 1
        for first in range(end - 1, max(-1, end - TUNING.longest_cascade - 1), -1):
            if not self._in_cascades[first] or self._constants[end] - self._constants[first] > budget:
                return
            if first < end - 1:
                yield first
            if first in self.cuts:
                return

    def _cycles(self, first: int, end: int, part: Evaluated) -> int:
        fetched = self._constants[end] - self._constants[first]
        cycles = max(part.cycles, part.moving_cycles + fetch_cycles(fetched, self.streams.target))
        return cycles + part.moving_cycles // TUNING.hidden_cycles

    def _parts(
        self,
        first: int,
        end: int,
        path: _Path,
        budget: int,
        found: Mapping[frozenset[str], _Path],
        keeps_smallest: bool,
    ) -> Iterator[tuple[frozenset[str], Part]]:
        """Yield segments of calls [first, end) that continue ``path``, each with the set of all tensors that stay after it.

        Each segment keeps other tensors that it defines in the memory of the NPU: none, the smallest, the two smallest, and so on.
        ``found`` has the best paths to ``end`` so far. A segment that can't improve ``found`` is left out. With ``keeps_smallest``, a
        segment is also tried if fewer bytes stay than after each of ``found``.
        """
        pieces, stays = self.streams.base.pieces, path.stays
        touched: frozenset[str] = frozenset().union(*self._touched[first:end])
        beside = sum(pieces[name].size for name in stays if name not in touched)
        defined, external = self._kinds(touched, first, end, stays)
        left = frozenset(name for name in stays if pieces[name].last >= end)
        known = sorted(each.cycles for each in found.values())
        most = known[TUNING.kept_states - 1] if len(found) >= TUNING.kept_states else ENDLESS
        most = min(most, known[0] + self._saving[end]) if known else most
        fewest = min(map(self._staying_bytes, found), default=ENDLESS) if keeps_smallest else 0
        for count in range(len(defined) + 1):
            beside_and_new = beside + sum(pieces[name].size for name in defined[:count])
            if beside_and_new > budget:
                break
            then, outside = left | frozenset(defined[:count]), external | frozenset(defined[count:])
            limit = ENDLESS if self._staying_bytes(then) < fewest else most
            limit = min(limit, found[then].cycles if then in found else ENDLESS)
            if path.cycles + self._least_cycles(first, end, outside) >= limit:
                continue
            part = self._fastest(first, end, outside, budget - beside, limit - path.cycles)
            if part is not None:
                yield then, (first, end, outside, part)

    def _kinds(
        self, touched: frozenset[str], first: int, end: int, stays: frozenset[str]
    ) -> tuple[list[str], frozenset[str]]:
        """Return the tensors that a segment defines for later ones, in ascending order of size, and those that must be external."""
        pieces, defined, external = self.streams.base.pieces, [], []
        for name in touched:
            piece = pieces[name]
            if name in self.outside or (0 <= piece.first < first and name not in stays):
                external.append(name)
            elif piece.first >= first and piece.last >= end:
                defined.append(name)
        defined.sort(key=lambda name: (pieces[name].size, name))
        return defined, frozenset(external)

    def _fastest(self, first: int, end: int, external: frozenset[str], budget: int, limit: int) -> Evaluated | None:
        key = first, end, external
        known = self._choices.get(key)
        if known is None:
            forms = Forms(self.streams, first, end, external)
            known = self._choices[key] = self.segments.choices(forms), forms
        choices, forms = known
        searched, best = choices.found.get(budget, (-1, None))
        if searched < limit:
            # Each iteration dispatches the last kernel. ``_least`` includes one dispatch of each kernel.
            spare = limit - (self._least[end] - self._least[first])
            same, most = choices.structure, max(1, 1 + spare // max(1, self.streams.base.issue_cycles))
            made = [same.fastest_of(number, budget, most) for number in range(len(same))]
            best = min(
                (each for each in made if each is not None),
                key=lambda each: (self._cycles(first, end, each), each.peak_bytes),
                default=None,
            )
            choices.found[budget] = limit, best
        return None if best is None else replace(best, forms=forms)
