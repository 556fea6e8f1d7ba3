# SPDX-License-Identifier: BSD-3-Clause
"""Addresses below a ceiling by depth-first search: part by part of the schedule, each buffer at an end of a gap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from openneutron.compiler.memory.placement import Item, Overlaps, Parts, Way
from openneutron.isa.rows import ALIGNMENT

TRIES = 4000
"""Buffers that are put somewhere before the search gives up; in both orders of the parts."""


def place_below(parts: Parts, ceiling: int, tries: int = TRIES) -> tuple[dict[str, int], tuple[int, ...]] | None:
    """Offsets that take at most ``ceiling`` bytes and the way each part runs, or None where ``tries`` find none.

    What a part brings is put at the ends of the gaps that are left, first in one way of the part, then in the others; where
    something finds no gap, the choice before it is taken back. From the first part to the last, then from the last to the first:
    as a stack grows from both ends, what lives long is there before what lives shortly, and the ends of gaps keep gaps large.
    """
    for order in (range(len(parts)), range(len(parts) - 1, -1, -1)):
        seen: set[str] = set()
        brought = []
        for part in order:
            new = {item.name for way in parts[part] for item in way.items} - seen
            brought.append([_brought(way, new) for way in parts[part]])
            seen |= new
        found = _Search(brought, ceiling // ALIGNMENT * ALIGNMENT, tries).found()
        if found is not None:
            starts, ways = found
            return starts, ways if order.step > 0 else ways[::-1]
    return None


@dataclass(frozen=True, slots=True)
class _Put:
    """A buffer, and those put before it that are live with it: their names, and the starts, counted from each one's start,
    between which (both excluded) it would lie where it may not."""

    name: str
    size: int
    others: tuple[tuple[str, int, int], ...]


def _brought(way: Way, new: set[str]) -> list[_Put]:
    """What the part brings in this way, the largest first."""
    there = [item for item in way.items if item.name not in new]
    puts = []
    for item in sorted((item for item in way.items if item.name in new), key=lambda item: (-item.size, item.name)):
        others = tuple(_blocked(item, other, way.overlaps) for other in there if item.overlaps(other))
        puts.append(_Put(item.name, item.size, others))
        there.append(item)
    return puts


def _blocked(item: Item, other: Item, overlaps: Overlaps) -> tuple[str, int, int]:
    behind = overlaps.get((item.name, other.name), -item.size)
    before = overlaps.get((other.name, item.name), -other.size)
    return other.name, max(-item.size, behind), min(other.size, -before)


_At = tuple[int, int, int]
"""A part, the way it runs, and how many of the buffers it brings are put."""


@dataclass(slots=True)
class _Search:
    """``parts``: what each brings in each of its ways. ``starts`` and ``ways`` hold the choices on the way to where it is."""

    parts: Sequence[Sequence[Sequence[_Put]]]
    ceiling: int
    tries: int
    starts: dict[str, int] = field(default_factory=dict)
    ways: dict[int, int] = field(default_factory=dict)

    def found(self) -> tuple[dict[str, int], tuple[int, ...]] | None:
        """Where everything starts, and the way of each part. Without recursion: there may be thousands of buffers."""
        stack = [self._ways_of(0)]
        while stack and self.tries > 0:
            at = next(stack[-1], None)
            if at is None:
                stack.pop()
            elif at[0] == len(self.parts):
                return self.starts, tuple(self.ways[part] for part in range(len(self.parts)))
            else:
                stack.append(self._next(at))
        return None

    def _next(self, at: _At) -> Iterator[_At]:
        part, way, index = at
        if index == len(self.parts[part][way]):
            yield from self._ways_of(part + 1)
            return
        put = self.parts[part][way][index]
        for start in self._ends(put):
            self.starts[put.name] = start
            self.tries -= 1
            yield part, way, index + 1

    def _ways_of(self, part: int) -> Iterator[_At]:
        if part == len(self.parts):
            yield part, 0, 0
            return
        for way in range(len(self.parts[part])):
            self.ways[part] = way
            yield part, way, 0

    def _ends(self, put: _Put) -> list[int]:
        """The first and the last start in each gap."""
        starts, top = self.starts, self.ceiling - put.size
        ends: list[int] = []
        if top < 0:
            return ends
        end = 0
        for low, high in sorted([(starts[name] + low, starts[name] + high) for name, low, high in put.others]):
            if low < high and low >= end:
                ends += (end, min(low, top))
            if low < high:
                end = max(end, high)
            if end > top:
                break
        else:
            ends += (end, top)
        return list(dict.fromkeys(ends))
