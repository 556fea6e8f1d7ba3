# SPDX-License-Identifier: BSD-3-Clause
"""Place buffers in the fewest bytes: by first fit in several orders, a depth-first search for the lower bound, and CP-SAT.

``lay_out`` places all storages of a schedule: it computes their live ranges, and gives each an address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from openneutron.compiler.schedule.schedule import Loop, Schedule, Wait
from openneutron.compiler.select.calls import Storage, Storages, state_bytes
from openneutron.ir import Graph
from openneutron.isa import aligned, base, base_text
from openneutron.isa.rows import ALIGNMENT, REGIONS
from openneutron.options import ARENA, CALLER, CompileOptions

TRIES = 4000
"""The number of addresses that the depth-first search tries, for each of its two orders of the parts, before it ends
without a result."""


def place_below(parts: Parts, ceiling: int, tries: int = TRIES) -> tuple[dict[str, int], tuple[int, ...]] | None:
    """Return a placement in at most ``ceiling`` bytes: the offset of each buffer, and the index of the chosen candidate
    of each part.

    Return None if no placement is found within ``tries`` tried addresses. This is a depth-first search with
    backtracking over two kinds of choices: the address of a buffer, and the candidate of a part. New buffers of a part
    are tried at the ends of the gaps between placed buffers, which keeps the rest of each gap in one piece. If no gap
    is large enough for a buffer, the search returns to the choice before it. Parts are placed from the first to the
    last, and if that fails, from the last to the first.

    Example with 10 units: x (4 units) is live in parts 0 and 1, y (5) in part 0, z (6) in part 1. Part 0 places y at 0,
    and x at 5, an end of its gap. In part 1, z then has gaps of 5 units and 1 unit, and fits in neither. The search
    goes back, moves x to 6, the other end, and z starts at 0.
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
    """A buffer to place, and the buffers that are placed before it and live at the same time.

    ``others`` has for each of these its name, and two offsets from its start: this buffer must not start strictly
    between the two.
    """

    name: str
    size: int
    others: tuple[tuple[str, int, int], ...]


def _brought(candidate: Candidate, new: set[str]) -> list[_Put]:
    """Return those buffers of a candidate that are in ``new``, in descending order of size."""
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
"""A state of the search: the part, the index of its candidate, and the number of its new buffers that are placed."""


@dataclass(slots=True)
class _Search:
    """A depth-first search for addresses. ``parts`` has, for each part and each of its candidates, the buffers that no
    earlier part has.

    ``starts`` has the addresses that are decided so far, and ``choices`` the index of the chosen candidate of each
    part.
    """

    parts: Sequence[Sequence[Sequence[_Put]]]
    ceiling: int
    tries: int
    starts: dict[str, int] = field(default_factory=dict)
    choices: dict[int, int] = field(default_factory=dict)

    def found(self) -> tuple[dict[str, int], tuple[int, ...]] | None:
        """Return the start of each buffer and the index of each part's candidate. Return None if no placement fits or
        ``tries`` addresses were tried."""
        # There is no recursion, since there may be thousands of buffers.
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
        """Return whether the live ranges of both buffers have a step in common."""
        return self.first <= other.last and other.first <= self.last


Overlaps = Mapping[tuple[str, str], int]
"""The bytes for pairs of buffers (made, dying) that may overlap: ``made`` may start at most so many bytes after the start of ``dying``,
though both are live.

This is diagonal memory optimisation (arXiv 2010.01668). Example: a kernel with a window of 3 rows reads a buffer of 8 rows from
the top, row by row, and writes another one of 8 rows. Row i is written while rows i - 1 to i + 1 are read; the rows above these are
not needed any more. So ``made`` may start 2 rows before ``dying`` (minus two row pitches), and the two take 10 rows instead of 16::

    dying          0 1 2 3 4 5 6 7
    made       0 1 2 3 4 5 6 7

A kernel that works in place allows 0 bytes: the two start at one address and take 8 rows.
"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of the alternatives for a part of the schedule: the buffers (``items``) that are live in the part, and
    which of them may overlap.

    The candidates of a part count the steps of their buffers from the same step, such as the first step of the part.
    """

    items: tuple[Item, ...]
    overlaps: Overlaps


Parts = Sequence[Sequence[Candidate]]
"""The parts of a schedule in order, each with its candidates. A placement chooses one candidate of each part. A buffer
has the same name in all parts."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The address of each item: its offset in the arena, in bytes.

    ``size`` is the size of the arena, and ``bound`` a lower bound of the size of all placements. ``method`` names the search that found
    this placement.
    """

    offsets: Mapping[str, int]
    size: int
    bound: int
    method: str

    @property
    def is_optimal(self) -> bool:
        """Return whether the size equals the lower bound, so that no placement of these buffers is smaller."""
        return self.size == self.bound

    def verify(self, items: Sequence[Item], overlaps: Overlaps = MappingProxyType({})) -> None:
        """Assert that offsets are aligned and inside the arena, and that buffers that are live at the same time overlap
        only as far as ``overlaps`` allow."""
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
    """Return a lower bound of the size of all placements, in bytes.

    The bound is the maximum over all steps of the live bytes, less the bytes that ``overlaps`` can save in the step.
    """
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
"""The largest number of buffers for which the exact search runs."""

EXACT_WORK = 2.0
"""CP-SAT's deterministic time limit: work units, not seconds, so that every machine stops at the same place."""


_ORDERS: tuple[tuple[str, Callable[[Item], tuple[int, ...]]], ...] = (
    ("first fit by size", lambda item: (-item.size, item.first)),
    ("first fit by time", lambda item: (item.first, -item.size)),
    ("first fit by lifetime", lambda item: (item.first - item.last, -item.size, item.first)),
    ("first fit by area", lambda item: (-item.size * (item.last - item.first + 1), item.first)),
)


def place(items: Sequence[Item], overlaps: Overlaps = MappingProxyType({}), work: float = EXACT_WORK) -> Placement:
    """Return the smallest placement that is found. The result is deterministic.

    First fit is tried first. If its result is larger than the lower bound, the depth-first search and then CP-SAT, with
    the deterministic time limit ``work``, search for a smaller one. With a ``work`` of 0, only first fit is used.
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


def place_in_order(items: Iterable[Item], most: int, overlaps: Overlaps) -> dict[str, int]:
    """Place items one after the other at the lowest free address, and return their offsets. Items that would end behind
    ``most`` bytes are left out."""
    offsets: dict[str, int] = {}
    placed: list[tuple[int, Item]] = []
    for item in items:
        live = ((start, other) for start, other in placed if item.overlaps(other))
        gap, end = _lowest_gap(sorted(_blocked(item, start, other, overlaps) for start, other in live))
        start = end if gap is None else gap[0]
        if start + item.size <= most:
            offsets[item.name] = start
            placed.append((start, item))
    return offsets


def _steps(items: Sequence[Item], overlaps: Overlaps) -> Parts:
    """Return the schedule of the buffers as parts: one for each step in which a buffer becomes live. Its only candidate
    has the items live in that step."""
    parts = []
    for step in sorted({item.first for item in items}):
        live = tuple(item for item in items if item.first <= step <= item.last)
        names = {item.name for item in live}
        parts.append((Candidate(live, {pair: far for pair, far in overlaps.items() if names.issuperset(pair)}),))
    return parts


def place_parts(parts: Parts, best: Placement, work: float, enough: int = 0) -> tuple[Placement, tuple[int, ...]]:
    """Return the smallest placement that is found over all candidates of the parts, and the index of each part's chosen
    candidate.

    A placement of at most ``enough`` bytes ends the search. ``best`` is a placement of each part's first candidate; it
    is returned if no smaller one is found. The result is deterministic. ``work`` is that of ``place``.
    """
    return place_near_bound(parts, best, enough) or place_smallest(parts, best, work)


def place_near_bound(parts: Parts, best: Placement, enough: int) -> tuple[Placement, tuple[int, ...]] | None:
    """Return a placement of at most max(``enough``, lower bound) bytes, and the index of each part's chosen
    candidate.

    Return None if neither ``best`` nor the depth-first search gives such a placement. ``best`` is a placement of each
    part's first candidate.
    """
    floor = _floor(parts)
    target = max(floor, enough)
    if best.size <= target:
        return best, (0,) * len(parts)
    found = place_below(parts, target)
    if found is None:
        return None
    offsets, choices = found
    chosen = [part[choice] for part, choice in zip(parts, choices, strict=True)]
    size = max(offsets[item.name] + item.size for each in chosen for item in each.items)
    return Placement(offsets, size, floor, "depth-first search"), choices


def exceed(parts: Parts, ceiling: int) -> bool:
    """Return whether an exact search proves that no placement, whatever the candidates, takes ``ceiling`` bytes or
    less.

    False means that nothing is proved. The search looks for any placement of that size, which is many times faster than
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
    """Return the smallest placement that the exact search finds, or else ``best``, and the index of each part's chosen
    candidate."""
    if not work or _is_large(parts):
        return best, (0,) * len(parts)
    # The import is here since most graphs need no exact search, and the solver takes longer to load than they take to compile.
    from openneutron.compiler.place.place_exact import place_exactly

    return place_exactly(parts, best, work)


def _blocked(item: Item, start: int, other: Item, overlaps: Overlaps) -> tuple[int, int]:
    """Return the range of forbidden starts of ``item``. With such a start, ``item`` would overlap ``other`` more than
    ``overlaps`` allows. ``start`` is the start of ``other``. Both ends of the range are excluded."""
    low, high = start - item.size, start + other.size
    furthest = overlaps.get((item.name, other.name))
    if furthest is not None:
        low = max(low, start + furthest)
    furthest = overlaps.get((other.name, item.name))
    if furthest is not None:
        high = min(high, start - furthest)
    return low, high


def _first_fit(ordered: Sequence[Item], ceiling: int | None, overlaps: Overlaps) -> dict[str, int]:
    """Return the offset of each item. Items are placed in their order, each in the lowest gap. ``_start_in`` describes ``ceiling``.

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
    """Return two results. The first is the range [first, last] of starts in the lowest gap, or None if there is no
    gap. The second is the first start above all blocked ranges.

    ``blocked`` has the ranges of forbidden starts in ascending order. The ends of a range do not belong to it.
    """
    gap, end = None, 0
    for low, high in blocked:
        if low < high:
            if gap is None and low >= end:
                gap = (end, low)
            end = max(end, high)
    return gap, end


def _start_in(gap: tuple[int, int] | None, end: int, size: int, ceiling: int | None, from_top: bool) -> int:
    """Return the start of an item of ``size`` bytes: in the gap, or outside all placed buffers if there is no gap.

    Without a ``ceiling``, the result is the lowest start. With a ceiling, the arena is filled from both ends, which
    keeps the space between them in one piece. A gap between two buffers is then used at its upper end. If there is no
    gap, the item begins at ``end``. With ``from_top`` it instead ends at the ceiling, if ``size`` bytes are free
    between ``end`` and the ceiling.
    """
    if gap is None:
        to_ceiling = ceiling is not None and from_top and ceiling - end >= size
        return (ceiling - size) // ALIGNMENT * ALIGNMENT if ceiling is not None and to_ceiling else end
    low, high = gap
    return high if ceiling is not None and high > low > 0 else low


@dataclass(frozen=True, slots=True)
class Layout:
    """The addresses of all storages except constants.

    ``homes`` has the base word (which memory or buffer) and the byte offset of each storage. ``items`` are the buffers
    of the arena, and ``placement`` their addresses. On a chip whose kernels work on a memory of the NPU, the arena is
    in that memory, and ``external_bytes`` is the size of the tensors in external memory. On a CPU whose buffers are in
    several memory regions (``compiler/search/regions.py``), ``far_items`` and ``far`` have the buffers and the
    placement of each region after the first; both are empty if one region has all buffers. ``third_bytes`` is the size
    of the buffers in the third region.
    """

    homes: Mapping[str, tuple[int, int]]
    items: tuple[Item, ...]
    placement: Placement
    external_bytes: int = 0
    far: tuple[Placement, ...] = ()
    far_items: tuple[tuple[Item, ...], ...] = ()
    third_bytes: int = 0

    @property
    def scratch_bytes(self) -> int:
        """Return the size of the arena in bytes."""
        return self.placement.size

    @property
    def regions_bytes(self) -> tuple[int, ...]:
        """Return the size in bytes of the buffers in each memory region, the first region first."""
        return self.placement.size, *(placement.size for placement in self.far)

    def __str__(self) -> str:
        """Return a line for each buffer: address, size, and live range in steps (-1 is before the first step)."""
        placed, offsets = {item.name for item in self.items}, self.placement.offsets
        lines = [f"arena {self.scratch_bytes} B, lower bound {self.placement.bound} B"]
        for item in sorted(self.items, key=lambda item: (item.first, offsets[item.name])):
            span = f"0x{offsets[item.name]:x} to 0x{offsets[item.name] + item.size:x}"
            lines.append(f"  %{item.name}: {span}, {item.size} B, live in steps {item.first} to {item.last}")
        others = {name: home for name, home in self.homes.items() if name not in placed}
        return "\n".join([*lines, *(f"  %{name}: {base_text(word)}+0x{at:x}" for name, (word, at) in others.items())])


def storage_bytes(storage: Storage, schedule: Schedule, storages: Storages) -> int:
    """Return the size of a storage in bytes: that of its rolling buffer if the schedule gives it one, otherwise that of
    all rows."""
    ring = schedule.rings.get(storage.name)
    if ring is None:
        return storage.size_bytes
    for call in schedule.calls:
        for view in call.views.values():
            if storages.of[view.tensor] == storage.name:
                return ring * view.pitches[1]
    raise AssertionError(f"{storage.name} is a rolling buffer that no call uses")


def lay_out(
    schedule: Schedule, storages: Storages, io: str, work: float = EXACT_WORK, reserved: Sequence[Item] = ()
) -> Layout:
    """Return the layout of all storages that a call uses or that are inputs or outputs.

    ``work`` is that of ``place``. ``reserved`` are further buffers for which the placement leaves space; the layout
    does not include them.
    """
    items, homes, external = _items(schedule, storages, io)
    overlaps = schedule.overlaps_of(item.name for item in items)
    placement = place([*items, *reserved], overlaps, work)
    if reserved:
        offsets = {item.name: placement.offsets[item.name] for item in items}
        size = max((offsets[item.name] + item.size for item in items), default=0)
        placement = replace(placement, offsets=offsets, size=size, bound=live_bound(items, overlaps))
    return _layout(items, overlaps, homes, placement, schedule, external)


def laid_out_at(placement: Placement, schedule: Schedule, storages: Storages, io: str) -> Layout:
    """Return the layout of a schedule whose buffers have the addresses in ``placement``.

    The lower bound of the layout is the larger of the bound of ``placement`` and ``live_bound``.
    """
    items, homes, external = _items(schedule, storages, io)
    overlaps = schedule.overlaps_of(item.name for item in items)
    bound = max(placement.bound, live_bound(items, overlaps))
    return _layout(items, overlaps, homes, replace(placement, bound=bound), schedule, external)


def in_several_buffers(
    layout: Layout, schedule: Schedule, near: Sequence[Mapping[str, int]], work: float = EXACT_WORK
) -> Layout:
    """Return the layout with its buffers divided among several memory regions.

    ``near`` has for each region but the last the buffers that it gets, with an address for each. The last region gets
    all other buffers. Each region has the smallest of three placements: a new one, the addresses in ``near``, and the
    addresses in ``layout``. So no region becomes larger than the arena of ``layout``. ``work`` is that of ``place``.
    """
    taken = {name for names in near for name in names}
    divided = [tuple(item for item in layout.items if item.name in names) for names in near]
    divided.append(tuple(item for item in layout.items if item.name not in taken))
    placed = []
    for items, given in zip(divided, (*near, layout.placement.offsets), strict=True):
        overlaps = schedule.overlaps_of(item.name for item in items)
        found = place(items, overlaps, work)
        for known in (given, layout.placement.offsets):
            offsets = {item.name: known[item.name] for item in items}
            size = max((offsets[item.name] + item.size for item in items), default=0)
            if size < found.size:
                found = replace(found, offsets=offsets, size=size)
        found.verify(items, overlaps)
        placed.append(found)
    homes = dict(layout.homes)
    for buffer, placement in zip(REGIONS, placed, strict=False):
        homes.update((name, (base(buffer), offset)) for name, offset in placement.offsets.items())
        homes.update(
            (name, (base(buffer), placement.offsets[allocation] + offset))
            for name, (allocation, offset) in schedule.allocations.items()
            if allocation in placement.offsets
        )
    scratch, *far = placed
    third = sum(placement.size for placement in far[1:])
    made = replace(layout, homes=homes, items=divided[0], placement=scratch, third_bytes=third)
    return replace(made, far=tuple(far), far_items=tuple(divided[1:]))


def _layout(
    items: list[Item],
    overlaps: Overlaps,
    homes: dict[str, tuple[int, int]],
    placement: Placement,
    schedule: Schedule,
    external: list[Item],
) -> Layout:
    placement.verify(items, overlaps)
    outer = place(external, {}, 0.0)
    homes.update((name, (base("SCRATCH"), offset)) for name, offset in outer.offsets.items())
    scratch = base("PREFETCH" if schedule.is_tiled else "SCRATCH")
    homes.update((name, (scratch, offset)) for name, offset in placement.offsets.items())
    homes.update(
        (name, (scratch, homes[allocation][1] + offset)) for name, (allocation, offset) in schedule.allocations.items()
    )
    return Layout(homes, tuple(items), placement, outer.size)


def _items(
    schedule: Schedule, storages: Storages, io: str
) -> tuple[list[Item], dict[str, tuple[int, int]], list[Item]]:
    """Return three things: the buffers of the arena, the base word and offset of each storage outside the arena
    (states, and inputs and outputs in the caller's buffers), and the buffers of external memory."""
    touched = _steps_of_storages(schedule, storages)
    homes: dict[str, tuple[int, int]] = {}
    items, external = [], []
    shared: dict[str, Item] = {}
    for name, storage in storages.storages.items():
        if storage.constant is not None:
            continue
        home = _home_outside(storage, io)
        first, last = touched.get(name, (0, 0))
        first = -1 if storage.is_given else first
        last = len(schedule.steps) if storage.is_kept else last
        if home is not None:
            homes[name] = home
        elif storage.external:
            external.append(Item(name, aligned(storage.size_bytes), first, last))
        elif name in schedule.allocations:
            allocation, offset = schedule.allocations[name]
            size = offset + aligned(storage_bytes(storage, schedule, storages))
            whole = shared.get(allocation, Item(allocation, size, first, last))
            shared[allocation] = Item(allocation, max(whole.size, size), min(whole.first, first), max(whole.last, last))
        elif name in touched or storage.is_border:
            items.append(Item(name, max(aligned(storage_bytes(storage, schedule, storages)), aligned(1)), first, last))
    return [*items, *shared.values()], homes, external


def _steps_of_storages(schedule: Schedule, storages: Storages) -> dict[str, tuple[int, int]]:
    """Return the first and the last step in which each storage is in use. A transfer uses its storages until a step
    waits for its channel."""
    steps: dict[str, tuple[int, int]] = {}
    moving: dict[int, set[str]] = {}

    def use(name: str, index: int) -> None:
        first, _ = steps.get(name, (index, index))
        steps[name] = (first, index)

    for index, step in enumerate(schedule.steps):
        for call in schedule.calls_of(step):
            for view in call.views.values():
                name = storages.of[view.tensor]
                use(name, index)
                if call.is_transfer:
                    moving.setdefault(call.params["channel"], set()).add(name)
        for part in step.body if isinstance(step, Loop) else (step,):
            for name in moving.pop(part.channel, ()) if isinstance(part, Wait) else ():
                use(name, index)
    return steps


def _home_outside(storage: Storage, io: str) -> tuple[int, int] | None:
    """Return the base word and offset of a storage outside the arena: a state, or an input or output in the caller's
    buffer. Return None for a storage of the arena."""
    if storage.state is not None:
        return base("STATE"), storage.state
    if io != CALLER:
        return None
    if storage.input is not None:
        return base("INPUT", storage.input), 0
    return (base("OUTPUT", storage.output), 0) if storage.output is not None else None


def bytes_outside(graph: Graph, io: str) -> int:
    """Return the bytes of SRAM outside the arena and the prefetch buffer: states, and inputs and outputs in the caller's buffers."""
    io_bytes = sum(graph[name].size_bytes for name in (*graph.inputs, *graph.outputs)) if io == CALLER else 0
    return state_bytes(graph) + io_bytes


def sram_bytes(graph: Graph, schedule: Schedule, layout: Layout, options: CompileOptions) -> int:
    """Return the SRAM in bytes that a run takes: the arena, the prefetch buffer, the buffers in the third memory
    region, the states, and inputs and outputs in the caller's buffers."""
    return (
        layout.scratch_bytes
        + schedule.prefetch_bytes
        + layout.third_bytes
        + bytes_outside(graph, ARENA if schedule.is_tiled else options.place)
    )
