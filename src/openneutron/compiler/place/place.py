# SPDX-License-Identifier: BSD-3-Clause
"""Addresses in the fewest bytes: first fit in several orders, a depth-first search for the lower bound, CP-SAT."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

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
        others = tuple(_range_blocked(item, other, candidate.overlaps) for other in there if item.overlaps(other))
        puts.append(_Put(item.name, item.size, others))
        there.append(item)
    return puts


def _range_blocked(item: Item, other: Item, overlaps: Overlaps) -> tuple[str, int, int]:
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


EXACT_ITEMS = 1000
"""Above so many buffers the exact search is left out."""

EXACT_WORK = 2.0
"""CP-SAT's deterministic time limit: work units, not seconds, so that every machine stops at the same place."""


_ORDERS: tuple[tuple[str, Callable[[Item], tuple[int, ...]]], ...] = (
    ("first fit by size", lambda item: (-item.size, item.first)),
    ("first fit by time", lambda item: (item.first, -item.size)),
    ("first fit by lifetime", lambda item: (item.first - item.last, -item.size, item.first)),
    ("first fit by area", lambda item: (-item.size * (item.last - item.first + 1), item.first)),
)


def place(items: Sequence[Item], overlaps: Overlaps = MappingProxyType({}), work: float = EXACT_WORK) -> Placement:
    """Return the smallest placement of all items that is found; deterministic.

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
    return place_parts(_steps(items, overlaps), best, work)[0]


def _steps(items: Sequence[Item], overlaps: Overlaps) -> Parts:
    """Return each step that defines an item as a part with one candidate: the items live in that step."""
    parts = []
    for step in sorted({item.first for item in items}):
        live = tuple(item for item in items if item.first <= step <= item.last)
        names = {item.name for item in live}
        parts.append((Candidate(live, {pair: far for pair, far in overlaps.items() if names.issuperset(pair)}),))
    return parts


def place_parts(parts: Parts, best: Placement, work: float, enough: int = 0) -> tuple[Placement, tuple[int, ...]]:
    """Return the smallest placement found over all candidates of the parts, or one of ``enough`` bytes, and each part's choice.

    The result is ``best``, a placement of each part's first candidate, where nothing is smaller. Deterministic. ``work``: see
    ``place``.
    """
    return place_near_bound(parts, best, enough) or place_smallest(parts, best, work)


def place_near_bound(parts: Parts, best: Placement, enough: int) -> tuple[Placement, tuple[int, ...]] | None:
    """Return a placement of ``enough`` bytes, or of the lower bound where that is larger, and each part's choice, or None.

    None means that no such placement was found without the exact search. ``best``: see ``place_parts``.
    """
    floor = _floor(parts)
    target = max(floor, enough)
    if best.size <= target:
        return best, (0,) * len(parts)
    # Imported here: first fit is enough for most graphs.

    found = place_below(parts, target)
    if found is None:
        return None
    offsets, choices = found
    chosen = [part[choice] for part, choice in zip(parts, choices, strict=True)]
    size = max(offsets[item.name] + item.size for each in chosen for item in each.items)
    return Placement(offsets, size, floor, "depth-first search"), choices


def exceed(parts: Parts, ceiling: int) -> bool:
    """Return True where it is proved that no placement of the parts, whatever the choices, takes ``ceiling`` bytes or less.

    The proof is an exact search for any placement of that size. Where it gives an answer, that search is many times faster than
    the search for the smallest placement.
    """
    if _floor(parts) > ceiling:
        return True
    if _is_large(parts):
        return False
    from openneutron.compiler.place.place_exact import is_infeasible

    return is_infeasible(parts, ceiling)


def _floor(parts: Parts) -> int:
    return max(min(live_bound(each.items, each.overlaps) for each in part) for part in parts)


def _is_large(parts: Parts) -> bool:
    return len({item.name for part in parts for item in part[0].items}) > EXACT_ITEMS


def place_smallest(parts: Parts, best: Placement, work: float) -> tuple[Placement, tuple[int, ...]]:
    """Return the smallest placement that the exact search finds, or ``best``, and each part's choice; see ``place_parts``."""
    if not work or _is_large(parts):
        return best, (0,) * len(parts)
    # Imported here: most graphs never get this far, and the solver takes longer to load than they take to compile.
    from openneutron.compiler.place.place_exact import place_exactly

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
    """Return the offset of each item, placed one after the other in the lowest gap; ``ceiling``: see ``_start_in``.

    Example without a ceiling: a (4 KiB) and b (2 KiB) are live together and get offsets 0 and 4 KiB. Then c (3 KiB) is live with
    b alone: all starts above 4 - 3 = 1 KiB and below 4 + 2 = 6 KiB would put c on b. The gap of starts 0 to 1 KiB is the lowest,
    and c starts at 0.
    """
    placed: list[tuple[int, Item]] = []
    offsets: dict[str, int] = {}
    may_overlap = {name for pair in overlaps for name in pair}
    for item in ordered:
        size, first, last = item.size, item.first, item.last
        live = [(start, other) for start, other in placed if first <= other.last and other.first <= last]
        if item.name in may_overlap:
            blocked = sorted(_blocked(item, start, other, overlaps) for start, other in live)
        else:
            blocked = sorted((start - size, start + other.size) for start, other in live)
        gap, end = _lowest_gap(blocked)
        offset = _start_in(gap, end, size, ceiling, len(placed) % 2 == 1)
        offsets[item.name] = offset
        placed.append((offset, item))
    return offsets


def _lowest_gap(blocked: Sequence[tuple[int, int]]) -> tuple[tuple[int, int] | None, int]:
    """Return the first and the last start of the lowest gap, or None, and the first start behind everything.

    ``blocked`` are ranges of starts, both ends excluded, in ascending order.
    """
    gap, end = None, 0
    for low, high in blocked:
        if low < high:
            if gap is None and low >= end:
                gap = (end, low)
            end = max(end, high)
    return gap, end


def _start_in(gap: tuple[int, int] | None, end: int, size: int, ceiling: int | None, from_top: bool) -> int:
    """Return a start in the gap, or at the arena's end where there is no gap.

    Without ``ceiling`` that is the lowest start. With a ceiling, the arena is filled from both ends, which keeps the gap between
    them in one piece: a gap between two buffers is used at its upper end, and every other item that finds no gap (``from_top``)
    ends at the ceiling.
    """
    if gap is None:
        to_ceiling = ceiling is not None and from_top and ceiling - end >= size
        return (ceiling - size) // ALIGNMENT * ALIGNMENT if ceiling is not None and to_ceiling else end
    low, high = gap
    return high if ceiling is not None and high > low > 0 else low
