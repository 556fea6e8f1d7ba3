# SPDX-License-Identifier: BSD-3-Clause
"""Addresses without overlap in the fewest bytes: first fit in several orders, a depth-first search below the bound, CP-SAT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType

from openneutron.compiler.place_below import place_below
from openneutron.compiler.placement import Item, Overlaps, Parts, Placement, Way, live_bound
from openneutron.isa.rows import ALIGNMENT

EXACT_ITEMS = 400
"""Above so many buffers the exact search is left out."""

EXACT_WORK = 10.0
"""CP-SAT's deterministic time limit: work units, not seconds, so that every machine stops at the same place."""

HALVINGS = 6
"""Ceilings between the bound and the best so far that are searched below where the exact search is left out."""


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
    return place_one_way(_steps(items, overlaps), best, work)[0] if work else best


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
    names = {item.name for part in parts for item in part[0].items}
    exact = len(names) <= EXACT_ITEMS
    chosen = (0,) * len(parts)
    low, high = max(floor, enough), best.size
    for attempt in range(1 if exact else HALVINGS):
        if low >= high:
            break
        ceiling = (low + high) // 2 // ALIGNMENT * ALIGNMENT if attempt else low
        found = place_below(parts, ceiling)
        if found is None:
            low = ceiling + ALIGNMENT
            continue
        offsets, chosen = found
        taken = [part[way] for part, way in zip(parts, chosen, strict=True)]
        high = max(offsets[item.name] + item.size for way in taken for item in way.items)
        best = Placement(offsets, high, floor, "depth-first search")
    if not exact or best.size <= max(floor, enough):
        return best, chosen
    # Imported here: most graphs never get this far, and the solver takes longer to load than they take to compile.
    from openneutron.compiler.place_exact import place_exactly

    return place_exactly(parts, best, work)


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
