# SPDX-License-Identifier: BSD-3-Clause
"""Choose cascade schedules for a budget: the fastest plan that fits once its buffers have addresses, or the plan of the least memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain

from openneutron.compiler.place.place import (
    Candidate,
    Item,
    Layout,
    Parts,
    Placement,
    exceed,
    laid_out_at,
    lay_out,
    place_near_bound,
    place_smallest,
)
from openneutron.compiler.place.prefetch import ENDLESS
from openneutron.compiler.schedule.schedule import Rows, Schedule, Step, Whole, calls_in
from openneutron.compiler.search.cascade.network import Network, mirrored, network
from openneutron.compiler.search.cascade.patches import held_rows, offsets, stripe
from openneutron.compiler.search.cascade.search import Plan, PlanSearch
from openneutron.compiler.search.cascade.stripes import Round, Stripes, compressed, rounds, turned
from openneutron.compiler.search.tuning import DEFAULT, Effort
from openneutron.compiler.select.calls import KernelCall, Storage, Storages
from openneutron.isa import aligned
from openneutron.options import CALLER
from openneutron.targets import Target

Numbers = Mapping[int, tuple[tuple[int, ...], ...]]
"""For each position of a segment, the numbers of its calls in the schedule: one tuple for each piece of a chain in
patches (a single one otherwise), with a number for each call."""


def schedule_of(parts: Sequence[Stripes], storages: Storages) -> tuple[Schedule, Storages]:
    """Return the schedule that the segments of a plan form, without prefetch, and its storages. A chain in patches is
    computed piece by piece; the tensors between its calls get new storages."""
    calls: list[KernelCall] = []
    steps: list[Step] = []
    rings: dict[str, int] = {}
    overlaps: dict[tuple[str, str], int] = {}
    allocations: dict[str, tuple[str, int]] = {}
    between: dict[str, Storage] = {}
    for part in parts:
        steps += part_steps(part, numbered(part, calls))
        rings |= part.rings
        overlaps |= part.overlaps
        for storage, held, offset in _between(part):
            between[storage.name] = storage
            rings[storage.name] = held
            allocations[storage.name] = part.between, offset
    schedule = Schedule(tuple(calls), tuple(steps), rings, 0, overlaps, allocations)
    if not between:
        return schedule, storages
    own = {name: name for name in between}
    return schedule, Storages({**storages.storages, **between}, {**storages.of, **own})


def numbered(part: Stripes, calls: list[KernelCall]) -> Numbers:
    """Append the calls of a segment to ``calls``, and return the numbers that they get, by position."""
    numbers = {}
    for position in part.segment.positions:
        made = part.segment.network.calls[position]
        pieces = ((made.call,),) if made.patch is None else made.patch.pieces
        starts = accumulate((len(piece) for piece in pieces[:-1]), initial=len(calls))
        numbers[position] = tuple(
            tuple(range(start, start + len(piece))) for start, piece in zip(starts, pieces, strict=True)
        )
        calls += chain.from_iterable(pieces)
    return numbers


def _between(part: Stripes) -> Iterator[tuple[Storage, int, int]]:
    """Yield each storage between two calls of a chain in patches. With it, yield the number of its rows that are in
    memory at once, and its offset in the allocation that all these storages share."""
    positions = [p for p in part.segment.positions if part.segment.network.calls[p].patch is not None]
    done = rounds(part.segment, part.pace, part.height, part.even) if positions else {}
    for position in positions:
        patch = part.segment.network.calls[position].patch
        assert patch is not None
        held = held_rows(patch.needs, done[position])
        for piece in patch.storages:
            yield from zip(piece, held, offsets(held, patch.row_bytes), strict=False)


def part_steps(part: Stripes, numbers: Numbers) -> list[Step]:
    """Return the steps that run a segment. ``numbers`` is the result of ``numbered``."""
    if part.is_whole:
        return [Whole(numbers[part.segment.first][0][0])]
    done = rounds(part.segment, part.pace, part.height, part.even)
    passed = dict.fromkeys(part.segment.positions, 0)
    made: list[Round] = []
    for index in range(len(done[part.pace])):
        stripes: list[Rows] = []
        for position in part.segment.positions:
            row = done[position][index]
            if row > passed[position]:
                stripes += _stripes(part, position, passed[position], row, numbers[position])
                passed[position] = row
        made.append(tuple(stripes))
    return compressed(made)


def _stripes(
    part: Stripes, position: int, row0: int, row1: int, numbers: tuple[tuple[int, ...], ...]
) -> Iterator[Rows]:
    """Yield the steps in which the call at ``position`` computes rows [row0, row1) of its output. A single call takes
    one step. A chain in patches takes one step for each of its calls and each piece."""
    network = part.segment.network
    call = network.calls[position]
    spans = [(row0, row1)] if call.patch is None else stripe(call.patch.needs, row0, row1)
    totals = [call.rows] if call.patch is None else call.patch.rows
    for piece in numbers:
        for number, (begin, end), total in zip(piece, spans, totals, strict=True):
            if begin < end:
                yield Rows(number, total - end, total - begin) if network.backwards else Rows(number, begin, end)


@dataclass(frozen=True, slots=True)
class CascadeSchedule:
    """A schedule of whole calls and cascades, with addresses, storages and modelled cycles.

    ``peak_bytes`` is the search's estimate of the memory, made before buffers had addresses. It is larger than the
    arena if buffers of a segment are not live at the same time, and smaller if the addresses leave gaps.
    """

    schedule: Schedule
    layout: Layout
    storages: Storages
    cycles: int
    peak_bytes: int

    @property
    def arena_bytes(self) -> int:
        """Return the size of the arena, in bytes."""
        return self.layout.scratch_bytes

    @property
    def budget_bytes(self) -> int:
        """Return the smallest budget for which ``CascadeSearch.fastest`` is sure to find this schedule or a faster one, in bytes."""
        return max(self.peak_bytes, self.arena_bytes)


@dataclass(slots=True)
class CascadeSearch:
    """The search for schedules of whole calls and cascades for one list of calls.

    With ``fetched``, memory is also reserved for constants that are copied to SRAM: for all constants of a cascade,
    and for the smallest piece of a call that is computed whole. The arena of a result has only tensors even then, so
    that only ``levels`` is useful with ``fetched``. A call of ``cuts`` can only be the first call of a cascade.
    ``floor_bytes`` is a lower bound of all arenas.
    """

    calls: Sequence[KernelCall]
    storages: Storages
    target: Target
    io: str
    fetched: bool = False
    effort: Effort = DEFAULT
    cuts: frozenset[int] = frozenset()
    floor_bytes: int = field(init=False)
    plans: PlanSearch = field(init=False)
    _mirrors: dict[int, Network] = field(default_factory=dict)
    _placed: dict[int, _Placing] = field(default_factory=dict)

    def __post_init__(self) -> None:
        made = network(self.calls, self.storages, self.target, self.io == CALLER, self.fetched)
        self.plans = PlanSearch(made, self.effort, self.cuts)
        self.floor_bytes = self.plans.floor()

    @property
    def least_cycles(self) -> int:
        """Return a lower bound of the cycles of all schedules, which is computed without a search."""
        return self.plans.least_cycles(0, len(self.calls), False)

    def fastest(self, budget: int) -> CascadeSchedule | None:
        """Return the schedule with the fewest cycles whose arena is at most ``budget`` bytes; None if there is none.

        The candidates are the same for all budgets. They are tried from the fastest to the smallest until one fits, so
        that a larger budget never gives a slower schedule.
        """
        if budget < self.floor_bytes:
            return None
        for plan in self._downwards(self.plans.plan(budget)):
            schedule = self._schedule(plan, budget)
            if schedule.arena_bytes <= budget:
                return schedule
        last = self._schedule(self.plans.least(), budget)
        return last if last.arena_bytes <= budget else None

    def least_bytes(self, below: int = ENDLESS) -> int:
        """Return the smallest budget in bytes for which ``fastest`` finds a schedule, but at most ``below``."""
        least, best = self.plans.least(), below
        if self._schedule(least, best - 1).arena_bytes < best:
            best = self._schedule(least).arena_bytes
        # A plan of more bytes may have a smaller arena. Smaller plans come first, since they can make the arena smaller by more.
        for plan in reversed([*self._downwards(self.plans.plan(best - 1))]):
            if plan.peak_bytes < best and self._schedule(plan, best - 1).arena_bytes < best:
                best = min(best, self._schedule(plan).budget_bytes)
        return best

    def levels(self, ratio: float) -> Iterator[CascadeSchedule]:
        """Yield schedules from the fastest to the smallest, each with at most ``ratio`` of the memory of the previous
        one. The last one is the smallest schedule, even if it saves less than that."""
        plan = self.plans.plan(ENDLESS)
        while plan is not None:
            plan = self._least_of_its_speed(plan)
            yield self._schedule(plan)
            smaller = self.plans.plan(min(plan.peak_bytes - 1, int(plan.peak_bytes * ratio)))
            least = self.plans.least()
            plan = least if smaller is None and least.peak_bytes < plan.peak_bytes else smaller

    def _downwards(self, plan: Plan | None) -> Iterator[Plan]:
        """Yield plans with less and less memory. The first has the cycles of ``plan``. Of several plans with equal
        cycles, only the one with the least memory is yielded."""
        while plan is not None:
            plan = self._least_of_its_speed(plan)
            yield plan
            plan = self.plans.plan(plan.peak_bytes - 1)

    def _least_of_its_speed(self, plan: Plan) -> Plan:
        while (smaller := self.plans.plan(plan.peak_bytes - 1)) is not None and smaller.cycles == plan.cycles:
            plan = smaller
        return plan

    def _schedule(self, plan: Plan, enough: int | None = None) -> CascadeSchedule:
        """Return the plan with addresses. The search for addresses ends at the first arena of at most ``enough`` bytes;
        without ``enough`` it looks for the smallest arena.

        If no arena of at most ``enough`` bytes is found, the result has a larger one.
        """
        placing = self._placed.get(plan.peak_bytes)
        if placing is None:
            # Several plans may have equal cycles and memory. This takes the same one of them for each budget.
            found = self.plans.plan(plan.peak_bytes)
            assert found is not None and found.cycles == plan.cycles
            placing = self._placed[plan.peak_bytes] = _Placing(found, self.at(found, found.parts, None))
        return placing.within(self, enough)

    def at(self, plan: Plan, parts: Sequence[Stripes], placement: Placement | None) -> CascadeSchedule:
        """Return the schedule of ``parts`` of a plan with the addresses of ``placement``, or with addresses by first
        fit if that is None."""
        schedule, storages = schedule_of(parts, self.storages)
        if placement is None:
            layout = lay_out(schedule, storages, self.io, 0.0)
        else:
            layout = laid_out_at(placement, schedule, storages, self.io)
        return CascadeSchedule(schedule, layout, storages, plan.cycles, plan.peak_bytes)

    def directions(self, plan: Plan) -> EitherWay:
        """Return the segments of the plan, each with its mirrored form (from the last rows to the first) if it has one."""
        choices: list[tuple[Stripes, ...]] = []
        for part in plan.parts:
            made = part.segment.network
            # Identities are safe as keys: the search keeps its networks.
            if part.overlaps and id(made) not in self._mirrors:
                self._mirrors[id(made)] = mirrored(made)
            other = turned(part, self._mirrors[id(made)]) if part.overlaps else None
            choices.append((part,) if other is None else (part, other))
        return EitherWay(choices, [[Candidate(*live_in(each)) for each in part] for part in choices])


@dataclass(slots=True)
class _Placing:
    """One plan with addresses. Smaller arenas for it are searched only on demand.

    ``as_it_is`` is the plan with addresses by first fit. ``smallest`` is the plan in the smallest arena that was
    found; it is None until that search. Some of its segments may run from the last rows to the first. ``exceeded`` is
    a size in bytes that every arena is proved to exceed.
    """

    plan: Plan
    as_it_is: CascadeSchedule
    smallest: CascadeSchedule | None = None
    exceeded: int = -1
    _directions: EitherWay | None = None

    def within(self, search: CascadeSearch, enough: int | None) -> CascadeSchedule:
        """Return the plan with addresses, in an arena of at most ``enough`` bytes if one is found (see
        ``CascadeSearch._schedule``)."""
        if enough is not None and self.as_it_is.arena_bytes <= enough:
            return self.as_it_is
        if self.smallest is None and self.as_it_is.arena_bytes <= self.plan.tensor_bytes:
            self.smallest = self.as_it_is
        if self.smallest is None and self._directions is None:
            self._directions = search.directions(self.plan)
            candidates, first_fit = self._directions.candidates, self.as_it_is.layout.placement
            self._take(search, place_near_bound(candidates, first_fit, self.plan.tensor_bytes))
        if self.smallest is None and enough is not None and self.exceeds(enough):
            return self.as_it_is
        if self.smallest is None:
            assert self._directions is not None
            candidates, first_fit = self._directions.candidates, self.as_it_is.layout.placement
            self._take(search, place_smallest(candidates, first_fit, search.effort.exact_work))
        assert self.smallest is not None
        return self.smallest

    def exceeds(self, enough: int) -> bool:
        """Return whether it is proved that no arena takes ``enough`` bytes or less."""
        assert self._directions is not None
        if self.exceeded < enough and exceed(self._directions.candidates, enough):
            self.exceeded = enough
        return enough <= self.exceeded

    def _take(self, search: CascadeSearch, placed: tuple[Placement, tuple[int, ...]] | None) -> None:
        if placed is not None:
            assert self._directions is not None
            placement, numbers = placed
            parts = [part[number] for part, number in zip(self._directions.choices, numbers, strict=True)]
            found = search.at(self.plan, parts, placement)
            better = found.arena_bytes < self.as_it_is.arena_bytes or found.layout.placement.is_optimal
            self.smallest = found if better else self.as_it_is


@dataclass(frozen=True, slots=True)
class EitherWay:
    """The segments of a plan, each with the directions in which it can run: from the first rows to the last, or
    backwards.

    A tensor that a cascade defines can overlap a tensor that it reads for the last time. The defined tensor then has
    the lower addresses, or the higher ones if the cascade runs backwards. So the size of the arena depends on
    directions and addresses together.
    """

    choices: Sequence[Sequence[Stripes]]
    candidates: Parts


def live_in(part: Stripes) -> tuple[tuple[Item, ...], Mapping[tuple[str, str], int]]:
    """Return the buffers that are live while a segment runs, with live ranges in steps of the segment, and the pairs of
    buffers that may overlap."""
    network, first, end = part.segment.network, part.segment.first, part.segment.end
    numbers = numbered(part, [])
    positions = {number: position for position, pieces in numbers.items() for piece in pieces for number in piece}
    steps = part_steps(part, numbers)
    touched: dict[str, tuple[int, int]] = {}
    for index, step in enumerate(steps):
        for number in calls_in(step):
            call = network.calls[positions[number]]
            for name in (call.output, *call.reads, *((part.between,) if call.patch is not None else ())):
                touched[name] = (touched.get(name, (index,))[0], index)
    items = [Item(part.between, part.between_bytes, *touched[part.between])] if part.between else []
    for piece in network.pieces.values():
        if not piece.size or piece.first >= end or (piece.last < first and (first or piece.last >= 0)):
            continue
        begin, last = touched.get(piece.name, (0, 0))
        begin = 0 if piece.first < first else begin
        last = len(steps) if piece.last >= end else last
        ring = part.rings.get(piece.name)
        items.append(Item(piece.name, aligned(ring * piece.row_pitch) if ring else piece.size, begin, last))
    return tuple(items), part.overlaps
