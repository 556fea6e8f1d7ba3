# SPDX-License-Identifier: BSD-3-Clause
"""Addresses without overlap in the fewest bytes: first fit in several orders, a depth-first search below the bound, CP-SAT."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from openneutron.compiler.memory.place_below import place_below
from openneutron.compiler.memory.placement import Item, Overlaps, Parts, Placement, Way, live_bound
from openneutron.isa.rows import ALIGNMENT

EXACT_ITEMS = 1000
"""Above so many buffers the exact search is left out."""

EXACT_WORK = 2.0
"""CP-SAT's deterministic time limit: work units, not seconds, so that every machine stops at the same place."""

MANY_ITEMS = 200
"""Above so many buffers the order of first fit is improved step by step before the exact search."""

CLIMBS = 100
"""Orders that are tried so."""


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
    if not work:
        return best
    parts = _steps(items, overlaps)
    many = len(items) > MANY_ITEMS
    best = place_one_way(parts, best, 0 if many else work)[0]
    if not many or best.is_optimal:
        return best
    best = _climbed(items, overlaps, best)
    return best if best.is_optimal else _exactly(parts, best, work)[0]


def _steps(items: Sequence[Item], overlaps: Overlaps) -> Parts:
    """Each step in which something becomes live as a part with one way: what is live there."""
    parts = []
    for step in sorted({item.first for item in items}):
        live = tuple(item for item in items if item.first <= step <= item.last)
        names = {item.name for item in live}
        parts.append((Way(live, {pair: far for pair, far in overlaps.items() if names.issuperset(pair)}),))
    return parts


def place_one_way(parts: Parts, best: Placement, work: float, enough: int = 0) -> tuple[Placement, tuple[int, ...]]:
    """The smallest placement that is found over all ways to run the parts, or one of ``enough`` bytes; and each part's way.

    ``best``, which is of the first ways, if nothing is smaller. Deterministic. ``work``: see ``place``.
    """
    floor = max(min(live_bound(way.items, way.overlaps) for way in part) for part in parts)
    ways, target = (0,) * len(parts), max(floor, enough)
    found = place_below(parts, target) if best.size > target else None
    if found is not None:
        offsets, ways = found
        taken = [part[way] for part, way in zip(parts, ways, strict=True)]
        size = max(offsets[item.name] + item.size for way in taken for item in way.items)
        return Placement(offsets, size, floor, "depth-first search"), ways
    return _exactly(parts, best, work) if best.size > target else (best, ways)


def _exactly(parts: Parts, best: Placement, work: float) -> tuple[Placement, tuple[int, ...]]:
    names = {item.name for part in parts for item in part[0].items}
    if not work or len(names) > EXACT_ITEMS:
        return best, (0,) * len(parts)
    # Imported here: most graphs never get this far, and the solver takes longer to load than they take to compile.
    from openneutron.compiler.memory.place_exact import place_exactly

    return place_exactly(parts, best, work)


def _climbed(items: Sequence[Item], overlaps: Overlaps, best: Placement) -> Placement:
    """First fit in one order after the other: what the highest buffer rests on, or itself, comes before another it is in the way of.

    As hill climbing in Arm's Vela and TVM's memory planner do it. An order that is no worse is kept.
    """
    kept = sorted(items, key=lambda item: (best.offsets[item.name], item.first, item.name))
    offsets = _first_fit(kept, None, overlaps)
    least = max(offsets[item.name] + item.size for item in items)
    choice = 1
    for _ in range(CLIMBS):
        pile = _pile(kept, offsets)
        # A linear congruential generator: the same choices on every machine.
        choice = (choice * 1103515245 + 12345) % (1 << 31)
        moved = pile[(choice >> 8) % len(pile)]
        blocking = [other for other in kept[: kept.index(moved)] if other.overlaps(moved)]
        if not blocking:
            continue
        order = [item for item in kept if item is not moved]
        order.insert(order.index(blocking[(choice >> 16) % len(blocking)]), moved)
        tried = _first_fit(order, None, overlaps)
        size = max(tried[item.name] + item.size for item in items)
        if size <= least:
            kept, offsets, least = order, tried, size
        if least == best.bound:
            break
    return best if best.size <= least else Placement(offsets, least, best.bound, "first fit, improved")


def _pile(ordered: Sequence[Item], offsets: Mapping[str, int]) -> list[Item]:
    """The item that ends highest, one that it rests on, and so on down to the arena's start or to where nothing holds it."""
    pile = [max(ordered, key=lambda item: (offsets[item.name] + item.size, item.name))]
    while True:
        start = offsets[pile[-1].name]
        below = (it for it in ordered if offsets[it.name] + it.size == start and it.overlaps(pile[-1]))
        found = next(below, None)
        if found is None:
            return pile
        pile.append(found)


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
