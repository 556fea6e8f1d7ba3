# SPDX-License-Identifier: BSD-3-Clause
"""Buffers to place, their placement, and a lower bound of all placements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from openneutron.isa.rows import ALIGNMENT


@dataclass(frozen=True, slots=True)
class Item:
    """A buffer of ``size`` bytes (a multiple of the alignment) that is live in steps ``first`` to ``last``."""

    name: str
    size: int
    first: int
    last: int

    def overlaps(self, other: Item) -> bool:
        """Return True where both are live in some step."""
        return self.first <= other.last and other.first <= self.last


Overlaps = Mapping[tuple[str, str], int]
"""(made, dying) to bytes: the first buffer may start at most so far behind the second's start, though both are live.

This is diagonal memory optimisation (arXiv 2010.01668). Example: a kernel with a window of 3 rows reads a buffer of 8 rows from
the top, row by row, and writes one of 8 rows. Row i is written while rows i - 1 to i + 1 are read; the rows above them are not
needed any more. So ``made`` may start 2 rows in front of ``dying`` (minus two row pitches), and the two take 10 rows instead of
16::

    dying          0 1 2 3 4 5 6 7
    made       0 1 2 3 4 5 6 7

A kernel that works in place allows 0 bytes: the two start at one address and take 8 rows.
"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run a part of the schedule: the buffers live during it, with steps counted within the part."""

    items: tuple[Item, ...]
    overlaps: Overlaps


Parts = Sequence[Sequence[Candidate]]
"""The parts of a schedule in order, each with its candidates, of which one is chosen. A buffer has one name in all parts."""


@dataclass(frozen=True, slots=True)
class Placement:
    """``offsets`` by item, the arena's ``size``, the ``bound`` no placement can beat, and which search found it."""

    offsets: Mapping[str, int]
    size: int
    bound: int
    method: str

    @property
    def is_optimal(self) -> bool:
        """Return True where no placement of these buffers takes less."""
        return self.size == self.bound

    def verify(self, items: Sequence[Item], overlaps: Overlaps = MappingProxyType({})) -> None:
        """Assert alignment, the arena's size, and that live items overlap only where they may."""
        live: list[Item] = []
        for item in sorted(items, key=lambda item: item.first):
            start = self.offsets[item.name]
            assert start >= 0 and start % ALIGNMENT == 0 and start + item.size <= self.size
            live = [other for other in live if item.overlaps(other)]
            for other in live:
                behind = self.offsets[other.name]
                apart = start + item.size <= behind or behind + other.size <= start
                allowed = start - behind <= overlaps.get((item.name, other.name), -other.size - item.size)
                allowed = allowed or behind - start <= overlaps.get((other.name, item.name), -other.size - item.size)
                assert apart or allowed, f"{item.name} and {other.name} overlap"
            live.append(item)


def live_bound(items: Iterable[Item], overlaps: Overlaps = MappingProxyType({})) -> int:
    """Return a lower bound of all placements: the most bytes live in one step, less the bytes that overlaps can save there."""
    changes: dict[int, int] = {}
    by_name = {}
    for item in items:
        by_name[item.name] = item
        changes[item.first] = changes.get(item.first, 0) + item.size
        changes[item.last + 1] = changes.get(item.last + 1, 0) - item.size
    for (one, other), furthest in overlaps.items():
        made, dying = by_name[one], by_name[other]
        first, last = max(made.first, dying.first), min(made.last, dying.last)
        if first <= last:
            saved = made.size + dying.size - max(dying.size + max(0, -furthest), made.size)
            changes[first] = changes.get(first, 0) - max(0, saved)
            changes[last + 1] = changes.get(last + 1, 0) + max(0, saved)
    live = most = 0
    for step in sorted(changes):
        live += changes[step]
        most = max(most, live)
    return most
