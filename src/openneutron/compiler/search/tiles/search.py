# SPDX-License-Identifier: BSD-3-Clause
"""The segments of a schedule in tiles, and which tensors stay in the memory of the NPU between them.

A tensor that is live between two segments is either there whole, or in external memory: then the segment that defines it stores it, and each
segment that reads it loads it. As in the search for cascades, the best plan is a shortest path over cuts of the calls. A state of the
path is a cut and the set of tensors that stay; the best ``KEPT`` states of each cut are kept, so that the search is a heuristic. The cycles of a segment
are the larger of its iterations with transfers beside kernels, and of all of its copies together, constants included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from openneutron.compiler.cost.cycles import fetch_cycles, least_compute_cycles
from openneutron.compiler.schedule.schedule import fetched_bytes
from openneutron.compiler.search.tiles.streams import Streamed, Streams, Tiled, tiled

KEPT = 6
"""States of a cut that are kept."""

LONGEST = 24
"""The most calls of a cascade."""

STRIPES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024)
"""Numbers of stripes that are tried."""

FINER = 3
"""So many of the next larger numbers are tried behind the smallest number of stripes that fits."""


@dataclass(frozen=True, slots=True)
class TilePlan:
    """Segments in order; ``cycles`` are an estimate."""

    parts: tuple[tuple[int, int, frozenset[str], Tiled], ...]
    cycles: int
    external: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Path:
    cycles: int
    stays: frozenset[str]
    part: tuple[int, int, frozenset[str], Tiled] | None
    earlier: _Path | None


@dataclass(slots=True)
class _Choices:
    """A segment whose external storages are known: the stripes that were evaluated, by their number."""

    forms: tuple[Streamed, ...]
    evaluated: dict[tuple[int, int], Tiled] = field(default_factory=dict)
    found: dict[int, Tiled | None] = field(default_factory=dict)


@dataclass(slots=True)
class TileSearch:
    """Plans in tiles for one list of calls."""

    streams: Streams
    _choices: dict[tuple[int, int, frozenset[str]], _Choices] = field(default_factory=dict)
    _least: list[int] = field(init=False)
    _constants: list[int] = field(init=False)
    _outside: frozenset[str] = field(init=False)
    _touched: list[frozenset[str]] = field(init=False)

    def __post_init__(self) -> None:
        target, storages = self.streams.target, self.streams.storages.storages
        self._least = [
            least_compute_cycles(call, target, call.views["output"].extents[1]) for call in self.streams.calls
        ]
        self._constants = [fetched_bytes(call, self.streams.storages) for call in self.streams.calls]
        self._outside = frozenset(name for name, each in storages.items() if each.is_border)
        self._touched = [frozenset((row.output, *row.reads)) for row in self.streams.base.calls]

    def plan(self, budget: int) -> TilePlan | None:
        """Return the fastest plan that is found for a memory of the NPU of ``budget`` bytes, or None."""
        count = len(self.streams.calls)
        best: list[list[_Path]] = [[_Path(0, frozenset(), None, None)], *([] for _ in range(count))]
        for end in range(1, count + 1):
            found: dict[frozenset[str], _Path] = {}
            for first in self._firsts(end):
                for path in best[first]:
                    if self._is_hopeless(path, first, end, found):
                        continue
                    for stays, part in self._parts(first, end, path.stays, budget):
                        cycles = path.cycles + self._cycles(first, end, part[3])
                        known = found.get(stays)
                        if known is None or cycles < known.cycles:
                            found[stays] = _Path(cycles, stays, part, path)
            best[end] = sorted(found.values(), key=lambda each: (each.cycles, sorted(each.stays)))[:KEPT]
        return self._made(best[count][0]) if best[count] else None

    def _is_hopeless(self, path: _Path, first: int, end: int, found: dict[frozenset[str], _Path]) -> bool:
        """Return True where ``KEPT`` better paths to the cut are known already."""
        if len(found) < KEPT:
            return False
        least = path.cycles + max(sum(self._least[first:end]), self._fetch(first, end))
        return least >= sorted(each.cycles for each in found.values())[KEPT - 1]

    def _made(self, path: _Path | None) -> TilePlan:
        assert path is not None
        cycles, parts = path.cycles, []
        external: set[str] = set()
        while path is not None and path.part is not None:
            parts.append(path.part)
            external |= path.part[2]
            path = path.earlier
        return TilePlan(tuple(reversed(parts)), cycles, frozenset(external))

    def _firsts(self, end: int) -> Iterator[int]:
        yield end - 1
        calls = self.streams.base.calls
        for first in range(end - 1, max(-1, end - LONGEST - 1), -1):
            if not calls[first].by_rows:
                return
            if first < end - 1:
                yield first

    def _fetch(self, first: int, end: int) -> int:
        return fetch_cycles(sum(self._constants[first:end]), self.streams.target)

    def _cycles(self, first: int, end: int, part: Tiled) -> int:
        return max(part.cycles, part.moving_cycles + self._fetch(first, end))

    def _parts(
        self, first: int, end: int, stays: frozenset[str], budget: int
    ) -> Iterator[tuple[frozenset[str], tuple[int, int, frozenset[str], Tiled]]]:
        """Yield the segment with each choice of defined tensors that stay: what then stays, and the segment."""
        pieces = self.streams.base.pieces
        touched: frozenset[str] = frozenset().union(*self._touched[first:end])
        beside = sum(pieces[name].size for name in stays if name not in touched)
        if beside >= budget:
            return
        defined = []
        external = set()
        for name in touched:
            piece = pieces[name]
            if name in self._outside:
                external.add(name)
            elif self.streams.storages.storages[name].state is not None:
                continue
            elif piece.first < first:
                if name not in stays:
                    external.add(name)
            elif piece.last >= end:
                defined.append(name)
        defined.sort(key=lambda name: (pieces[name].size, name))
        left = frozenset(name for name in stays if pieces[name].last >= end)
        for count in range(len(defined) + 1):
            if sum(pieces[name].size for name in defined[:count]) + beside > budget:
                break
            outside = frozenset({*external, *defined[count:]})
            part = self._fastest(first, end, outside, budget - beside)
            if part is not None:
                yield left | frozenset(defined[:count]), (first, end, outside, part)

    def _fastest(self, first: int, end: int, external: frozenset[str], budget: int) -> Tiled | None:
        key = first, end, external
        choices = self._choices.get(key)
        if choices is None:
            alone = end - first == 1
            forms = [self.streams.streamed(first, end, external, True)] if alone else []
            if self.streams.base.calls[first].by_rows and (external or not alone):
                forms.append(self.streams.streamed(first, end, external))
            choices = self._choices[key] = _Choices(tuple(form for form in forms if form is not None))
        if budget not in choices.found:
            made = [self._of_form(choices, number, budget) for number in range(len(choices.forms))]
            choices.found[budget] = min(
                (each for each in made if each is not None),
                key=lambda each: (self._cycles(first, end, each), each.peak_bytes),
                default=None,
            )
        return choices.found[budget]

    def _of_form(self, choices: _Choices, number: int, budget: int) -> Tiled | None:
        form = choices.forms[number]
        found = form.segment
        least = found.fixed_bytes + sum(min(pitch, size) for _, pitch, size in found.rolling)
        if least > budget:
            return None
        rows = form.calls[form.pace].rows
        is_alone = len(form.calls) == 1
        heights = [*dict.fromkeys(-(-rows // n) for n in (STRIPES if not is_alone else (1,)) if n <= rows)]

        def at(index: int) -> Tiled:
            key = number, heights[index]
            if key not in choices.evaluated:
                choices.evaluated[key] = tiled(form, heights[index], False)
            return choices.evaluated[key]

        low, high = 0, len(heights)
        while low < high:
            middle = (low + high) // 2
            if at(middle).peak_bytes <= budget:
                high = middle
            else:
                low = middle + 1
        tried = [at(index) for index in range(low, min(low + 1 + FINER, len(heights)))]
        fits = [each for each in tried if each.peak_bytes <= budget]
        return min(fits, key=lambda each: (each.cycles, each.peak_bytes), default=None)
