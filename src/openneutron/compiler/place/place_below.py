# SPDX-License-Identifier: BSD-3-Clause
"""Addresses below a ceiling by depth-first search: part by part of the schedule, each buffer at an end of a gap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from openneutron.compiler.place.place import Candidate, Item, Overlaps, Parts
from openneutron.isa.rows import ALIGNMENT

TRIES = 4000
"""Buffers that are put somewhere before the search gives up; in both orders of the parts."""


def place_below(parts: Parts, ceiling: int, tries: int = TRIES) -> tuple[dict[str, int], tuple[int, ...]] | None:
    """Return offsets that take at most ``ceiling`` bytes, and the candidate of each part, or None where ``tries`` find none.

    The new buffers of each part are placed at the ends of the gaps between the buffers already there, first for one candidate of
    the part, then for the others. Where a buffer has no gap, the search goes back to the choice before it. The ends of a gap keep
    the rest of the gap in one piece. Parts are placed from the first to the last, and where that fails, from the last to the
    first.

    Example with 10 units: x (4 units) is live in parts 0 and 1, y (5) in part 0, z (6) in part 1. Part 0 places y at 0, and x at
    5, an end of its gap. In part 1, z then has gaps of 5 units and 1 unit, and fits in neither. The search goes back, moves x to
    6, the other end, and z starts at 0.
    """
    for order in (range(len(parts)), range(len(parts) - 1, -1, -1)):
        seen: set[str] = set()
        brought = []
        for part in order:
            new = {item.name for each in parts[part] for item in each.items} - seen
            brought.append([_brought(each, new) for each in parts[part]])
            seen |= new
        found = _Search(brought, ceiling // ALIGNMENT * ALIGNMENT, tries).found()
        if found is not None:
            starts, choices = found
            return starts, choices if order.step > 0 else choices[::-1]
    return None


@dataclass(frozen=True, slots=True)
class _Put:
    """A buffer, and the buffers placed before it that are live with it.

    ``others``: the name of each, and two starts relative to its start; a start between these two, both excluded, is not allowed.
    """

    name: str
    size: int
    others: tuple[tuple[str, int, int], ...]


def _brought(candidate: Candidate, new: set[str]) -> list[_Put]:
    """Return the new buffers of a part's candidate, the largest first."""
    there = [item for item in candidate.items if item.name not in new]
    puts = []
    for item in sorted(
        (item for item in candidate.items if item.name in new), key=lambda item: (-item.size, item.name)
    ):
        others = tuple(_blocked(item, other, candidate.overlaps) for other in there if item.overlaps(other))
        puts.append(_Put(item.name, item.size, others))
        there.append(item)
    return puts


def _blocked(item: Item, other: Item, overlaps: Overlaps) -> tuple[str, int, int]:
    behind = overlaps.get((item.name, other.name), -item.size)
    before = overlaps.get((other.name, item.name), -other.size)
    return other.name, max(-item.size, behind), min(other.size, -before)


_At = tuple[int, int, int]
"""A part, its candidate, and how many of its new buffers are placed."""


@dataclass(slots=True)
class _Search:
    """``parts``: the new buffers of each part, for each of its candidates. ``starts`` and ``choices`` are the decisions so far."""

    parts: Sequence[Sequence[Sequence[_Put]]]
    ceiling: int
    tries: int
    starts: dict[str, int] = field(default_factory=dict)
    choices: dict[int, int] = field(default_factory=dict)

    def found(self) -> tuple[dict[str, int], tuple[int, ...]] | None:
        """Return all starts, and the candidate of each part. Without recursion: there may be thousands of buffers."""
        stack = [self._candidates_of(0)]
        while stack and self.tries > 0:
            at = next(stack[-1], None)
            if at is None:
                stack.pop()
            elif at[0] == len(self.parts):
                return self.starts, tuple(self.choices[part] for part in range(len(self.parts)))
            else:
                stack.append(self._next(at))
        return None

    def _next(self, at: _At) -> Iterator[_At]:
        part, choice, index = at
        if index == len(self.parts[part][choice]):
            yield from self._candidates_of(part + 1)
            return
        put = self.parts[part][choice][index]
        for start in self._ends(put):
            self.starts[put.name] = start
            self.tries -= 1
            yield part, choice, index + 1

    def _candidates_of(self, part: int) -> Iterator[_At]:
        if part == len(self.parts):
            yield part, 0, 0
            return
        for choice in range(len(self.parts[part])):
            self.choices[part] = choice
            yield part, choice, 0

    def _ends(self, put: _Put) -> list[int]:
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
