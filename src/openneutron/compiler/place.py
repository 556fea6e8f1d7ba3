# SPDX-License-Identifier: BSD-3-Clause
"""Addresses without overlap in the fewest bytes: first fit in several orders, then an exact search where that falls short."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from openneutron.isa.rows import ALIGNMENT

EXACT_ITEMS = 400
"""Above so many buffers the exact search is left out."""

EXACT_WORK = 10.0
"""CP-SAT's deterministic time limit: work units, not seconds, so that every machine stops at the same place."""


@dataclass(frozen=True, slots=True)
class Item:
    """A buffer of ``size`` bytes (a multiple of the alignment) that is live in steps ``first`` to ``last``."""

    name: str
    size: int
    first: int
    last: int

    def overlaps(self, other: Item) -> bool:
        return self.first <= other.last and other.first <= self.last


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

    def verify(self, items: Sequence[Item]) -> None:
        """Asserts alignment, the arena's size, and that no two live items overlap."""
        for index, item in enumerate(items):
            start = self.offsets[item.name]
            assert start >= 0 and start % ALIGNMENT == 0 and start + item.size <= self.size
            for other in items[index + 1 :]:
                apart = start + item.size <= self.offsets[other.name] or self.offsets[other.name] + other.size <= start
                assert apart or not item.overlaps(other), f"{item.name} and {other.name} overlap"


def live_bound(items: Iterable[Item]) -> int:
    """The most bytes live in one step: no placement takes fewer."""
    changes: dict[int, int] = {}
    for item in items:
        changes[item.first] = changes.get(item.first, 0) + item.size
        changes[item.last + 1] = changes.get(item.last + 1, 0) - item.size
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


def place(items: Sequence[Item]) -> Placement:
    """A placement of all items, the smallest that is found; deterministic."""
    bound = live_bound(items)
    if not items:
        return Placement({}, 0, 0, "nothing to place")
    best: Placement | None = None
    for method, key in _ORDERS:
        ordered = sorted(items, key=lambda item: (*key(item), item.name))
        for ceiling in (None, bound):
            offsets = _first_fit(ordered, ceiling)
            size = max(offsets[item.name] + item.size for item in items)
            if best is None or size < best.size:
                best = Placement(offsets, size, bound, method)
            if best.size == bound:
                return best
    assert best is not None
    return _exact(items, best) if len(items) <= EXACT_ITEMS else best


def _first_fit(ordered: Sequence[Item], ceiling: int | None) -> dict[str, int]:
    """Each item at the lowest gap; with a ceiling, items go to the end of the arena they lie nearer to."""
    placed: list[tuple[int, Item]] = []
    offsets: dict[str, int] = {}
    for item in ordered:
        neighbours = sorted(((start, other) for start, other in placed if other.overlaps(item)), key=lambda p: p[0])
        gaps: list[tuple[int, int]] = []
        end = 0
        for start, other in neighbours:
            if start - end >= item.size:
                gaps.append((end, start))
            end = max(end, start + other.size)
        limit = ceiling if ceiling is not None and ceiling - end >= item.size else None
        offset = gaps[0][0] if gaps else end
        if ceiling is not None and not gaps and limit is not None and len(placed) % 2:
            offset = (limit - item.size) // ALIGNMENT * ALIGNMENT
        elif ceiling is not None and gaps and gaps[0][1] - gaps[0][0] > item.size and gaps[0][0] > 0:
            offset = gaps[0][1] - item.size
        offsets[item.name] = offset
        placed.append((offset, item))
    return offsets


def _exact(items: Sequence[Item], best: Placement) -> Placement:
    """CP-SAT's placement where it is smaller; one worker and a limit in work keep it deterministic."""
    # Imported here: most graphs never get this far, and the solver takes longer to load than they take to compile.
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    units = {item.name: item.size // ALIGNMENT for item in items}
    bound, ceiling = best.bound // ALIGNMENT, best.size // ALIGNMENT
    starts = {item.name: model.new_int_var(0, ceiling - units[item.name], f"s{i}") for i, item in enumerate(items)}
    arena = model.new_int_var(bound, ceiling, "arena")
    times, places = [], []
    for i, item in enumerate(items):
        times.append(model.new_fixed_size_interval_var(item.first, item.last - item.first + 1, f"t{i}"))
        places.append(model.new_fixed_size_interval_var(starts[item.name], units[item.name], f"p{i}"))
        model.add(starts[item.name] + units[item.name] <= arena)
        model.add_hint(starts[item.name], best.offsets[item.name] // ALIGNMENT)
    model.add_no_overlap_2d(times, places)
    model.minimize(arena)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = EXACT_WORK
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE) or solver.value(arena) * ALIGNMENT >= best.size:
        return best
    offsets = {name: solver.value(start) * ALIGNMENT for name, start in starts.items()}
    size = max(offsets[item.name] + item.size for item in items)
    return Placement(offsets, size, best.bound, "exact search")
