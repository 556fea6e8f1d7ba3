# SPDX-License-Identifier: BSD-3-Clause
"""Constant prefetch for a budget: which constants are copied from flash to SRAM how far ahead of their use.

While a kernel computes, a port that copies in the background brings the next constants. With the driver's own port, which copies
at once, the same program takes the sum of both. More memory allows earlier copies; with less memory, whole convolutions are cut
into groups of output channels. The candidates of a schedule, pairs of a memory size and the pieces of its calls, do not depend on
the budget, so that a greater budget never gives a slower program.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from openneutron.compiler.memory.layout import Layout, laid_out_at
from openneutron.compiler.memory.prefetch import ENDLESS, PrefetchSearch
from openneutron.compiler.memory.prefetch_trial import ORDERS, PrefetchTrial
from openneutron.compiler.schedule.schedule import Fetch, Schedule, fetched_bytes
from openneutron.isa import aligned

SHARES = (1.0, 0.7, 0.5, 0.33, 0.25, 0.2)
"""Calls are cut so that no piece takes more than this share of the free bytes in its step. With a half, the next piece can be
copied while one is in use."""

FIRST_CAPACITY = 1024
"""Bytes of the smallest amount of memory tried; each is about 1/32 larger than the one before."""

ENOUGH = 1.002
"""Plans for whole tensors within this ratio of the fewest cycles count as equally fast; the smallest of them is taken."""


@dataclass(frozen=True, slots=True)
class PrefetchPlan:
    """A schedule's prefetch. ``cycles``: with a port that copies in the background.

    From a budget of ``budget_bytes`` on, ``fastest_plan`` finds this plan or a faster one.
    """

    search: PrefetchSearch
    trial: PrefetchTrial
    budget_bytes: int

    @property
    def cycles(self) -> int:
        return self.trial.cycles

    @property
    def size_bytes(self) -> int:
        """Return the SRAM of tensors and constants."""
        return self.trial.size_bytes

    def laid_out(self, io: str) -> tuple[Schedule, Layout]:
        """Return the schedule with its copies, and its layout.

        The arena ends behind the tensors, or behind a constant that crosses that end; the prefetch buffer follows.
        """
        search = self.search
        schedule, end = search.made(self.trial), search.arena_bytes
        places = sorted(
            (step.destination, step.destination + fetched_bytes(schedule.calls[step.call], search.storages))
            for step in schedule.steps
            if isinstance(step, Fetch)
        )
        for _ in places:
            end = max([end, *(behind for start, behind in places if start < end)])
        schedule = dataclasses.replace(schedule, prefetch_bytes=max(0, self.size_bytes - end))
        layout = laid_out_at(search.layout.placement, schedule, search.storages, io)
        return schedule, dataclasses.replace(layout, placement=dataclasses.replace(layout.placement, size=end))


def good_plan(search: PrefetchSearch) -> PrefetchPlan:
    """Return the plan of the least memory with which a schedule is nearly as fast as with unlimited memory."""
    best = search.trial({}, ENDLESS, ENDLESS)
    assert best is not None
    enough = int(best.cycles * ENOUGH) + 1
    for capacity in _capacities(search, search.smallest()):
        if search.bound(capacity) >= enough:
            continue
        found = _fastest_within(search, capacity, enough)
        if found is not None:
            return PrefetchPlan(search, found, found.size_bytes)
    return PrefetchPlan(search, best, best.size_bytes)


def fastest_plan(families: Iterable[Iterable[PrefetchSearch]], budget: int, least_cycles: int) -> PrefetchPlan | int:
    """Return the fastest plan of at most ``budget`` bytes that takes ``least_cycles`` or more, or the bytes of the smallest plan.

    The schedules of a family are in ascending order of their compute cycles. A schedule that can't be faster than the best plan so
    far is not asked for.
    """
    best: PrefetchPlan | None = None
    limit = least = ENDLESS
    for family in families:
        for search in family:
            if search.compute_cycles >= limit:
                break
            smallest = search.smallest()
            least = min(least, smallest.size_bytes)
            if smallest.size_bytes > budget:
                continue
            if least_cycles <= smallest.cycles < limit:
                best, limit = PrefetchPlan(search, smallest, smallest.size_bytes), smallest.cycles
            for capacity in reversed([capacity for capacity in _capacities(search, smallest) if capacity <= budget]):
                if search.bound(capacity) >= limit:
                    break
                found = _fastest_within(search, capacity, limit, least_cycles)
                if found is not None:
                    best, limit = PrefetchPlan(search, found, capacity), found.cycles
    return least if best is None else best


def all_plans(schedules: Iterable[PrefetchSearch], least_cycles: int = 0) -> tuple[PrefetchPlan, ...]:
    """Return for each amount of memory the fastest plan that takes ``least_cycles`` or more, by growing memory."""
    tried = []
    each = [*schedules]
    for index, search in enumerate(each):
        smallest = search.smallest()
        tried += [(capacity, index) for capacity in _capacities(search, smallest)]
        tried.append((smallest.size_bytes, index))
    found: list[PrefetchPlan] = []
    limit = ENDLESS
    for (capacity, index), again in itertools.groupby(sorted(tried)):
        search = each[index]
        if search.bound(capacity) >= limit:
            continue
        trial = _fastest_within(search, capacity, limit, least_cycles)
        if trial is None and len([*again]) > 1 and least_cycles <= search.smallest().cycles < limit:
            trial = search.smallest()
        if trial is not None:
            if found and found[-1].budget_bytes == capacity:
                found.pop()
            found.append(PrefetchPlan(search, trial, capacity))
            limit = trial.cycles
    return tuple(found)


def _capacities(search: PrefetchSearch, smallest: PrefetchTrial) -> list[int]:
    """Return the amounts of memory that are tried for a schedule, by size; none of them depends on the budget."""
    found = [smallest.size_bytes]
    capacity = FIRST_CAPACITY
    while capacity < search.most_bytes:
        capacity += aligned(capacity // 32)
        if capacity > smallest.size_bytes:
            found.append(capacity)
    return found


def _fastest_within(search: PrefetchSearch, capacity: int, limit: int, least_cycles: int = 0) -> PrefetchTrial | None:
    """Return the fastest candidate in ``capacity`` bytes that takes ``least_cycles`` or more and less than ``limit``, or None."""
    best = None
    before = None
    for share in SHARES:
        counts = search.counts(capacity, share)
        if counts == before:
            continue
        before = counts
        for order in ORDERS:
            trial = search.trial(counts, capacity, limit, order=order)
            if trial is not None and trial.cycles >= least_cycles:
                best, limit = trial, trial.cycles
    return best
