# SPDX-License-Identifier: BSD-3-Clause
"""Evaluate segments in tiles once, for all searches that contain them.

A graph is searched in several orders of its calls and in several divisions. Most segments have the same calls in each of them. The memory
and the cycles of a segment depend on its calls, on the tensors that are external, and on the other users of its tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from openneutron.compiler.search.tiles.streams import Streamed, Streams, Tiled, tiled
from openneutron.compiler.select.calls import KernelCall, Storages

MOST_STRIPES = 4096
"""The most iterations of a segment."""

STRIPES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024)
"""These numbers of stripes are tried, and one stripe for each row."""

FINER = 3
"""After the smallest number of stripes that fits, so many of the next larger numbers are tried."""


@dataclass(frozen=True, slots=True, eq=False)
class Evaluated:
    """A form of a segment in stripes of ``height`` rows: the cycles of ``Tiled`` and its memory."""

    form: Streamed
    height: int
    cycles: int
    moving_cycles: int
    peak_bytes: int

    def tiled(self) -> Tiled:
        """Return the segment with the progress of its calls."""
        return tiled(self.form, self.height, False)


@dataclass(slots=True)
class Choices:
    """The forms of a segment whose external storages are known, and the stripes that were evaluated, by form and height.

    ``found``: by budget, the limit of a search for stripes and its result.
    """

    forms: tuple[Streamed, ...]
    evaluated: dict[tuple[int, int], Evaluated] = field(default_factory=dict)
    found: dict[int, tuple[int, Evaluated | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, streams: Streams, first: int, end: int, external: frozenset[str]) -> Choices:
        """Return the choices of calls [first, end)."""
        alone = end - first == 1
        forms = [streams.streamed(first, end, external, True)] if alone else []
        if streams.base.calls[first].by_rows and (external or not alone):
            forms.append(streams.streamed(first, end, external))
        return cls(tuple(form for form in forms if form is not None))

    def fastest_of(self, number: int, budget: int, limit: int, issue_cycles: int) -> Evaluated | None:
        """Return the fastest stripes of a form in ``budget`` bytes, of those with dispatches of fewer than ``limit`` cycles."""
        form = self.forms[number]
        found = form.segment
        least = found.fixed_bytes + sum(min(pitch, size) for _, pitch, size in found.rolling)
        if least > budget:
            return None
        rows = form.calls[form.pace].rows
        numbers = (1,) if len(form.calls) == 1 else (*STRIPES, min(rows, MOST_STRIPES))
        heights = [*dict.fromkeys(-(-rows // n) for n in numbers if n <= rows and n * issue_cycles < limit)]
        # Few stripes are evaluated quickly, so that the search for the smallest number that fits begins with them.
        low, high, step = 0, len(heights), 1
        while low < high:
            middle = min(low + step, high) - 1
            if self._at(number, heights[middle]).peak_bytes <= budget:
                high, step = middle, (middle - low + 1) // 2
            else:
                low, step = middle + 1, 2 * step if high == len(heights) else (high - middle) // 2
            step = max(1, step)
        best = None
        for index in range(low, min(low + 1 + FINER, len(heights))):
            each = self._at(number, heights[index])
            if each.peak_bytes <= budget and (best is None or each.cycles < best.cycles):
                best = each
            elif best is not None:
                break
        return best

    def _at(self, number: int, height: int) -> Evaluated:
        found = self.evaluated.get((number, height))
        if found is None:
            form = self.forms[number]
            made = tiled(form, height, False)
            found = Evaluated(form, height, made.cycles, made.moving_cycles, made.peak_bytes)
            self.evaluated[number, height] = found
        return found


Key = tuple[object, ...]


@dataclass(slots=True)
class Segments:
    """The choices of segments by their calls, and by the use of their storages inside and outside of them."""

    _known: dict[Key, Choices] = field(default_factory=dict)
    _held: dict[int, Storages | KernelCall] = field(default_factory=dict)
    """The objects of the keys by their identity, which no other object has while they exist."""

    def __len__(self) -> int:
        """Return the number of segments."""
        return len(self._known)

    def choices(self, streams: Streams, first: int, end: int, external: frozenset[str]) -> Choices:
        """Return the choices of calls [first, end) with these storages in external memory."""
        key = self._key(streams, first, end, external)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Choices.of(streams, first, end, external)
            self._held[id(streams.storages)] = streams.storages
            self._held |= {id(call): call for call in streams.calls[first:end]}
        return found

    def _key(self, streams: Streams, first: int, end: int, external: frozenset[str]) -> Key:
        pieces, names = streams.base.pieces, set()
        for row in streams.base.calls[first:end]:
            names |= {row.output, *row.reads}
        used = []
        for name in sorted(names):
            piece = pieces[name]
            here = sum(first <= writer < end for writer in piece.writers)
            shape = piece.row_pitch, piece.rows, piece.can_roll, piece.block_rows
            used.append((name in external, piece.first < first, piece.last >= end, here, len(piece.writers), shape))
        return (id(streams.storages), *map(id, streams.calls[first:end]), *used)
