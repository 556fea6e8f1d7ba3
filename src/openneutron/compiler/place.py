# SPDX-License-Identifier: BSD-3-Clause
"""Addresses without overlap in the fewest bytes: first fit in several orders, then an exact search where that falls short."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from openneutron.isa.rows import ALIGNMENT

EXACT_ITEMS = 400
"""Above so many buffers the exact search is left out."""

EXACT_WORK = 10.0
"""CP-SAT's deterministic time limit: work units, not seconds, so that every machine stops at the same place."""

BUMPS = 24
"""Tries of first fit in each direction with what ended highest moved to the front."""


@dataclass(frozen=True, slots=True)
class Item:
    """A buffer of ``size`` bytes (a multiple of the alignment) that is live in steps ``first`` to ``last``."""

    name: str
    size: int
    first: int
    last: int

    def overlaps(self, other: Item) -> bool:
        return self.first <= other.last and other.first <= self.last


Overlaps = Mapping[tuple[str, str], int]
"""(made, dying) to bytes: the first may start at most so far behind the second's start, though both are live."""


@dataclass(frozen=True, slots=True)
class Placement:
    """``offsets`` by item, the arena's ``size``, the ``bound`` no placement can beat, and which search found it."""

    offsets: Mapping[str, int]
    size: int
    bound: int
    method: str

    @property
    def is_optimal(self) -> bool:
        return self.size == self.bound

    def verify(self, items: Sequence[Item], overlaps: Overlaps = MappingProxyType({})) -> None:
        """Asserts alignment, the arena's size, and that no two live items overlap but as they may."""
        for index, item in enumerate(items):
            start = self.offsets[item.name]
            assert start >= 0 and start % ALIGNMENT == 0 and start + item.size <= self.size
            for other in items[index + 1 :]:
                behind = self.offsets[other.name]
                apart = start + item.size <= behind or behind + other.size <= start
                allowed = start - behind <= overlaps.get((item.name, other.name), -other.size - item.size)
                allowed = allowed or behind - start <= overlaps.get((other.name, item.name), -other.size - item.size)
                assert apart or allowed or not item.overlaps(other), f"{item.name} and {other.name} overlap"


def live_bound(items: Iterable[Item], overlaps: Overlaps = MappingProxyType({})) -> int:
    """The most bytes live in one step, less what overlaps can save there: no placement takes fewer."""
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


_ORDERS: tuple[tuple[str, Callable[[Item], tuple[int, ...]]], ...] = (
    ("first fit by size", lambda item: (-item.size, item.first)),
    ("first fit by time", lambda item: (item.first, -item.size)),
    ("first fit by lifetime", lambda item: (item.first - item.last, -item.size, item.first)),
    ("first fit by area", lambda item: (-item.size * (item.last - item.first + 1), item.first)),
)


def place(items: Sequence[Item], overlaps: Overlaps = MappingProxyType({}), work: float = EXACT_WORK) -> Placement:
    """A placement of all items, the smallest that is found; deterministic.

    ``work``: where first fit stays above the bound, CP-SAT searches for so long; 0: not at all.
    """
    bound = live_bound(items, overlaps)
    if not items:
        return Placement({}, 0, 0, "nothing to place")
    sizes = {item.name: item.size for item in items}
    turned = {(dying, made): f + sizes[made] - sizes[dying] for (made, dying), f in overlaps.items()}
    best: Placement | None = None

    def better(method: str, ordered: Sequence[Item], ceiling: int | None, from_top: bool) -> Placement:
        offsets = _first_fit(ordered, ceiling, turned if from_top else overlaps)
        size = max(offsets[item.name] + item.size for item in items)
        if from_top:
            offsets = {name: size - start - sizes[name] for name, start in offsets.items()}
        return best if best is not None and best.size <= size else Placement(offsets, size, bound, method)

    for method, key in _ORDERS:
        ordered = sorted(items, key=lambda item: (*key(item), item.name))
        for ceiling in (None, bound):
            for from_top in (False, True) if overlaps else (False,):
                best = better(method, ordered, ceiling, from_top)
                if best.size == bound:
                    return best
    assert best is not None
    if work and len(items) <= EXACT_ITEMS:
        # Imported here: most graphs never get this far, and the solver takes longer to load than they take to compile.
        from openneutron.compiler.place_exact import place_exactly

        return place_exactly(items, overlaps, best, work)
    for from_top in (False, True):
        ordered = sorted(items, key=lambda item: (-item.size, item.first, item.name))
        for _ in range(BUMPS):
            # Whoever ended highest comes first in the next try.
            offsets = _first_fit(ordered, None, turned if from_top else overlaps)
            highest = max(ordered, key=lambda item: (offsets[item.name] + item.size, item.name))
            ordered.remove(highest)
            ordered.insert(0, highest)
            best = better("first fit, bumped", ordered, None, from_top)
            if best.size == bound:
                return best
    return best


def _blocked(item: Item, start: int, other: Item, overlaps: Overlaps) -> tuple[int, int]:
    """Starts between these two, both excluded, would put ``item`` on ``other``, which starts at ``start``."""
    low, high = start - item.size, start + other.size
    furthest = overlaps.get((item.name, other.name))
    if furthest is not None:
        low = max(low, start + furthest)
    furthest = overlaps.get((other.name, item.name))
    if furthest is not None:
        high = min(high, start - furthest)
    return low, high


def _first_fit(ordered: Sequence[Item], ceiling: int | None, overlaps: Overlaps) -> dict[str, int]:
    """Each item at the lowest gap; with a ceiling, items go to the end of the arena they lie nearer to."""
    placed: list[tuple[int, Item]] = []
    offsets: dict[str, int] = {}
    free = {name for pair in overlaps for name in pair}
    for item in ordered:
        name, size, first, last = item.name, item.size, item.first, item.last
        if name in free:
            blocked = [
                _blocked(item, start, it, overlaps) for start, it in placed if first <= it.last and it.first <= last
            ]
        else:
            blocked = [(start - size, start + it.size) for start, it in placed if first <= it.last and it.first <= last]
        blocked.sort()
        gaps: list[tuple[int, int]] = []
        end = 0
        for low, high in blocked:
            if low >= high:
                continue
            if low >= end:
                gaps.append((end, low))
            end = max(end, high)
        limit = ceiling if ceiling is not None and ceiling - end >= item.size else None
        offset = gaps[0][0] if gaps else end
        if ceiling is not None and not gaps and limit is not None and len(placed) % 2:
            offset = (limit - item.size) // ALIGNMENT * ALIGNMENT
        elif ceiling is not None and gaps and gaps[0][1] > gaps[0][0] > 0:
            offset = gaps[0][1]
        offsets[name] = offset
        placed.append((offset, item))
    return offsets
