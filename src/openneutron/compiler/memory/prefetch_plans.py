# SPDX-License-Identifier: BSD-3-Clause
"""Copies of constants from flash to SRAM, ahead of their use.

While a kernel computes, a port that copies in the background brings the constants that come next; with the driver's own port,
which copies at once, the same program takes the sum of both. More memory looks further ahead, and whole convolutions can be
cut into groups of output channels for less. What is tried is one list for each schedule, of amounts of memory and ways to cut,
which does not depend on the budget: so more memory never costs time.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from openneutron.compiler.memory.layout import Layout, with_steps_of
from openneutron.compiler.memory.prefetch import ENDLESS, ORDERS, Copies, Trial
from openneutron.compiler.schedule.schedule import Fetch, Schedule, fetched_bytes
from openneutron.compiler.schedule.timeline import copy_cycles, durations
from openneutron.compiler.select.storage import Storages
from openneutron.isa import aligned

SHARES = (1.0, 0.7, 0.5, 0.33, 0.25, 0.2)
"""Calls are cut so that no piece takes more than this share of what is free in its step: with a half, the next one can come
meanwhile."""

FIRST_CAPACITY = 1024
"""Bytes of the smallest amount of memory tried; each is about 1/32 larger than the one before."""

ENOUGH = 1.002
"""Whole tensors with copies that take at most so many times the least cycles are as good; of those the smallest are taken."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Copies for a schedule. ``cycles``: with a port that copies in the background. ``budget_bytes``: ``fastest_plan`` finds it,
    or something faster, from there on."""

    copies: Copies
    trial: Trial
    budget_bytes: int

    @property
    def cycles(self) -> int:
        return self.trial.cycles

    @property
    def size_bytes(self) -> int:
        """The SRAM of tensors and constants."""
        return self.trial.size_bytes

    @property
    def blocking_cycles(self) -> int:
        """With a port that copies at once."""
        schedule, target = self.copies.made(self.trial), self.copies.target
        computed = sum(durations(schedule, target).values())
        return computed + copy_cycles(schedule, fetched_sizes(schedule, self.copies.storages), target)

    def laid_out(self, io: str) -> tuple[Schedule, Layout]:
        """The schedule with its copies. The arena ends behind the tensors, and behind a constant that lies across that end;
        the prefetch buffer is what comes then."""
        copies = self.copies
        schedule, end = copies.made(self.trial), copies.arena_bytes
        places = sorted(
            (step.destination, step.destination + fetched_bytes(schedule.calls[step.call], copies.storages))
            for step in schedule.steps
            if isinstance(step, Fetch)
        )
        for _ in places:
            end = max([end, *(behind for start, behind in places if start < end)])
        schedule = dataclasses.replace(schedule, prefetch_bytes=max(0, self.size_bytes - end))
        layout = with_steps_of(copies.layout, schedule, copies.storages, io)
        return schedule, dataclasses.replace(layout, placement=dataclasses.replace(layout.placement, size=end))


def fetched_sizes(schedule: Schedule, storages: Storages) -> dict[int, int]:
    """What each call's constants take in SRAM, by the call's index; calls without any are left out."""
    sizes = {index: fetched_bytes(call, storages) for index, call in enumerate(schedule.calls)}
    return {index: size for index, size in sizes.items() if size}


def good_plan(copies: Copies) -> Plan:
    """The least memory with which a schedule is nearly as fast as with any."""
    best = copies.trial({}, ENDLESS, ENDLESS)
    assert best is not None
    enough = int(best.cycles * ENOUGH) + 1
    for capacity in _capacities(copies, copies.smallest()):
        if copies.bound(capacity) >= enough:
            continue
        found = _fastest_within(copies, capacity, enough)
        if found is not None:
            return Plan(copies, found, found.size_bytes)
    return Plan(copies, best, best.size_bytes)


def fastest_plan(families: Iterable[Iterable[Copies]], room: int, least_cycles: int) -> Plan | int:
    """The fastest plan of at most ``room`` bytes that takes ``least_cycles`` or more; where there is none, the bytes of the
    smallest plan.

    The schedules of a family come from the one that computes fastest on; those that can't be faster than what is found are not
    asked for.
    """
    best: Plan | None = None
    limit = least = ENDLESS
    for family in families:
        for copies in family:
            if copies.compute_cycles >= limit:
                break
            smallest = copies.smallest()
            least = min(least, smallest.size_bytes)
            if smallest.size_bytes > room:
                continue
            if least_cycles <= smallest.cycles < limit:
                best, limit = Plan(copies, smallest, smallest.size_bytes), smallest.cycles
            for capacity in reversed([capacity for capacity in _capacities(copies, smallest) if capacity <= room]):
                if copies.bound(capacity) >= limit:
                    break
                found = _fastest_within(copies, capacity, limit, least_cycles)
                if found is not None:
                    best, limit = Plan(copies, found, capacity), found.cycles
    return least if best is None else best


def all_plans(schedules: Iterable[Copies], least_cycles: int = 0) -> tuple[Plan, ...]:
    """For each amount of memory the fastest plan of these schedules that takes ``least_cycles`` or more; by growing memory."""
    tried = []
    each = [*schedules]
    for index, copies in enumerate(each):
        smallest = copies.smallest()
        tried += [(capacity, index) for capacity in _capacities(copies, smallest)]
        tried.append((smallest.size_bytes, index))
    found: list[Plan] = []
    limit = ENDLESS
    for (capacity, index), again in itertools.groupby(sorted(tried)):
        copies = each[index]
        if copies.bound(capacity) >= limit:
            continue
        trial = _fastest_within(copies, capacity, limit, least_cycles)
        if trial is None and len([*again]) > 1 and least_cycles <= copies.smallest().cycles < limit:
            trial = copies.smallest()
        if trial is not None:
            if found and found[-1].budget_bytes == capacity:
                found.pop()
            found.append(Plan(copies, trial, capacity))
            limit = trial.cycles
    return tuple(found)


def _capacities(copies: Copies, smallest: Trial) -> list[int]:
    """The amounts of memory that are tried for a schedule, by size; none of them depends on the budget."""
    found = [smallest.size_bytes]
    capacity = FIRST_CAPACITY
    while capacity < copies.most_bytes:
        capacity += aligned(capacity // 32)
        if capacity > smallest.size_bytes:
            found.append(capacity)
    return found


def _fastest_within(copies: Copies, capacity: int, limit: int, least_cycles: int = 0) -> Trial | None:
    """The fastest way of those tried for this much memory that takes ``least_cycles`` or more, and less than ``limit``."""
    best = None
    before = None
    for share in SHARES:
        counts = copies.counts(capacity, share)
        if counts == before:
            continue
        before = counts
        for order in ORDERS:
            trial = copies.trial(counts, capacity, limit, order=order)
            if trial is not None and trial.cycles >= least_cycles:
                best, limit = trial, trial.cycles
    return best
