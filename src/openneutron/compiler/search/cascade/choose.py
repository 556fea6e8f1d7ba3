# SPDX-License-Identifier: BSD-3-Clause
"""Cascade schedules for a budget: the fastest plan that fits once its buffers have addresses, or the least memory of all plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from openneutron.compiler.memory.layout import Layout, laid_out_at, lay_out
from openneutron.compiler.memory.placement import Placement
from openneutron.compiler.schedule.schedule import Schedule
from openneutron.compiler.search.cascade.directions import placed_either_way
from openneutron.compiler.search.cascade.network import Network, mirrored, network
from openneutron.compiler.search.cascade.search import Plan, PlanSearch
from openneutron.compiler.search.cascade.steps import schedule_of
from openneutron.compiler.search.cascade.stripes import Stripes, turned
from openneutron.compiler.search.effort import DEFAULT, Effort
from openneutron.compiler.select.calls import KernelCall
from openneutron.compiler.select.storage import Storages
from openneutron.options import CALLER
from openneutron.targets import Target

UNLIMITED = 1 << 40


@dataclass(frozen=True, slots=True)
class CascadeSchedule:
    """A schedule with addresses, the storages with those that are its own, and its modelled cycles.

    ``peak_bytes`` is the search's estimate. The estimate is above the arena where buffers of a segment are not live at the same
    time, and below the arena where the addresses leave gaps.
    """

    schedule: Schedule
    layout: Layout
    storages: Storages
    cycles: int
    peak_bytes: int

    @property
    def arena_bytes(self) -> int:
        """Return the arena with all addresses."""
        return self.layout.scratch_bytes

    @property
    def budget_bytes(self) -> int:
        """Return the budget from which on ``CascadeSearch.fastest`` finds this schedule or a faster one."""
        return max(self.peak_bytes, self.arena_bytes)


@dataclass(slots=True)
class CascadeSearch:
    """The cascade schedules of these calls.

    ``fetched``: the search reserves memory for constants too: for all constants of a cascade, for the smallest piece of a
    whole call. The arenas hold tensors only; only ``levels`` is of use then. ``cuts``: no cascade continues from before such a
    call into it. ``floor_bytes``: a lower bound of the arenas.
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

    def fastest(self, budget: int) -> CascadeSchedule | None:
        """Return the schedule of the fewest cycles in an arena of at most ``budget`` bytes, or None.

        It is the first that fits of one list, from the fastest schedule to the smallest: a greater budget never costs cycles.
        """
        if budget < self.floor_bytes:
            return None
        for plan in self._downwards(self.plans.plan(budget)):
            schedule = self._schedule(plan, budget)
            if schedule.arena_bytes <= budget:
                return schedule
        last = self._schedule(self.plans.least(), budget)
        return last if last.arena_bytes <= budget else None

    def least_bytes(self) -> int:
        """Return the smallest budget that ``fastest`` finds a schedule for."""
        last = self._schedule(self.plans.least())
        # A plan whose buffers take more may have an arena that takes less.
        above = self._downwards(self.plans.plan(last.arena_bytes - 1))
        return min([last.arena_bytes, *(self._schedule(plan).budget_bytes for plan in above)])

    def levels(self, ratio: float) -> Iterator[CascadeSchedule]:
        """Yield schedules from the fastest to the smallest, each with at most ``ratio`` of the memory of the one before."""
        plan = self.plans.plan(UNLIMITED)
        while plan is not None:
            plan = self._least_of_its_speed(plan)
            yield self._schedule(plan)
            smaller = self.plans.plan(min(plan.peak_bytes - 1, int(plan.peak_bytes * ratio)))
            least = self.plans.least()
            plan = least if smaller is None and least.peak_bytes < plan.peak_bytes else smaller

    def _downwards(self, plan: Plan | None) -> Iterator[Plan]:
        """Yield for each number of cycles, from the plan's on, the plan of the least memory."""
        while plan is not None:
            plan = self._least_of_its_speed(plan)
            yield plan
            plan = self.plans.plan(plan.peak_bytes - 1)

    def _least_of_its_speed(self, plan: Plan) -> Plan:
        while (smaller := self.plans.plan(plan.peak_bytes - 1)) is not None and smaller.cycles == plan.cycles:
            plan = smaller
        return plan

    def _schedule(self, plan: Plan, enough: int = 0) -> CascadeSchedule:
        """Return the plan with addresses, in the smallest arena that is found, or in the first of at most ``enough`` bytes."""
        placing = self._placed.get(plan.peak_bytes)
        if placing is None:
            # Of several plans of one speed and memory always the same, whatever budget led here.
            found = self.plans.plan(plan.peak_bytes)
            assert found is not None and found.cycles == plan.cycles
            placing = self._placed[plan.peak_bytes] = _Placing(self._arenas(found))
        return placing.within(enough)

    def _arenas(self, plan: Plan) -> Iterator[CascadeSchedule]:
        """Yield the plan as it is, then with each cascade in the direction that lets the arena shrink to the estimate."""
        best = self._at(plan, plan.parts, None)
        yield best
        if best.arena_bytes <= plan.tensor_bytes:
            return
        others = [turned(part, self._mirror(part.segment.network)) if part.overlaps else None for part in plan.parts]
        placed, work = best.layout.placement, self.effort.exact_work
        tried = self._at(plan, *placed_either_way(plan.parts, others, placed, work, plan.tensor_bytes))
        if tried.arena_bytes < best.arena_bytes or tried.layout.placement.is_optimal:
            yield tried

    def _at(self, plan: Plan, parts: Sequence[Stripes], placement: Placement | None) -> CascadeSchedule:
        """Return the plan's parts at the addresses of the placement; without a placement, by first fit."""
        schedule, storages = schedule_of(parts, self.storages)
        if placement is None:
            layout = lay_out(schedule, storages, self.io, 0.0)
        else:
            layout = laid_out_at(placement, schedule, storages, self.io)
        return CascadeSchedule(schedule, layout, storages, plan.cycles, plan.peak_bytes)

    def _mirror(self, made: Network) -> Network:
        """Return the mirrored network. Identities are safe as keys: the search keeps its networks."""
        if id(made) not in self._mirrors:
            self._mirrors[id(made)] = mirrored(made)
        return self._mirrors[id(made)]


@dataclass(slots=True)
class _Placing:
    """A plan's arenas; smaller ones are searched only on demand."""

    arenas: Iterator[CascadeSchedule]
    seen: list[CascadeSchedule] = field(default_factory=list)

    def within(self, enough: int) -> CascadeSchedule:
        for schedule in self.seen:
            if schedule.arena_bytes <= enough:
                return schedule
        for schedule in self.arenas:
            self.seen.append(schedule)
            if schedule.arena_bytes <= enough:
                break
        return self.seen[-1]
