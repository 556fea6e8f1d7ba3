# SPDX-License-Identifier: BSD-3-Clause
"""Copies of constants from flash to SRAM, ahead of their use.

The prefetch buffer is a ring: constants come in the order of their first use, each as soon as there is room, and stay until
the last step that reads them. While a kernel computes, a port that copies in the background brings what comes next; with the
driver's own port, which copies at once, the same program takes the sum of both. Larger buffers look further ahead, smaller
ones are made possible by cutting large convolutions into groups of output channels. Which of these a program gets is chosen
from a list that does not depend on the budget, so that more memory never costs time.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openneutron.compiler.cost import fetch_cycles
from openneutron.compiler.schedule import Fetch, Schedule, Step, Wait, calls_in, fetched_bytes
from openneutron.compiler.split import split_calls
from openneutron.compiler.storage import Storages
from openneutron.compiler.timeline import durations, overlapped_cycles
from openneutron.targets import Target

CHANNELS = 16
"""Copies under way at a time; the driver's NEUTRON_CHANNELS."""

PIECES = (1 << 17, 1 << 16, 1 << 15, 1 << 14, 1 << 13)
"""Bytes of constants above which a convolution is cut, beside not cutting any."""

MOST_SIZES = 32
"""Buffer sizes that are tried for each way of cutting."""

ENOUGH = 1.01
"""A plan whose time is at most so many times the best one's is as good; of those the smallest buffer is taken."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule with its copies. ``cycles``: with a port that copies in the background; ``blocking_cycles``: with one that
    does not."""

    schedule: Schedule
    cycles: int
    blocking_cycles: int

    @property
    def size_bytes(self) -> int:
        return self.schedule.prefetch_bytes


def fetched_sizes(schedule: Schedule, storages: Storages) -> dict[int, int]:
    """What each call's constants take in the prefetch buffer, by the call's index; calls without any are left out."""
    sizes = {index: fetched_bytes(call, storages) for index, call in enumerate(schedule.calls)}
    return {index: size for index, size in sizes.items() if size}


def prefetch_plans(schedule: Schedule, storages: Storages, target: Target) -> tuple[Plan, ...]:
    """The schedule's plans from the smallest prefetch buffer on; each larger one is faster, and not slower with any port."""
    found: list[Plan] = []
    largest = max(fetched_sizes(schedule, storages).values(), default=0)
    for most in (None, *(size for size in PIECES if size < largest)):
        cut = schedule if most is None else split_calls(schedule, most)
        sizes = fetched_sizes(cut, storages)
        used = _uses(cut.steps, sizes)
        computed = durations(cut, target)
        spent = sum(computed[step] for step in cut.steps)
        copied = sum(fetch_cycles(size, target) for size in sizes.values())
        for capacity in _capacities([sizes[index] for index, _, _ in used]):
            steps = _with_fetches(cut.steps, used, sizes, capacity)
            if steps is None:
                continue
            ends = (step.destination + sizes[step.call] for step in steps if isinstance(step, Fetch))
            made = dataclasses.replace(cut, steps=steps, prefetch_bytes=max(ends, default=0))
            found.append(Plan(made, overlapped_cycles(made, sizes, computed, target), spent + copied))
    found.sort(key=lambda plan: (plan.size_bytes, plan.cycles, plan.blocking_cycles))
    better: list[Plan] = []
    for plan in found:
        if not better or (plan.cycles < better[-1].cycles and plan.blocking_cycles <= better[-1].blocking_cycles):
            better.append(plan)
    return tuple(better)


def choose_plan(plans: Sequence[Plan], room: int) -> Plan | None:
    """The plan for a prefetch buffer of at most ``room`` bytes: the first that is nearly as fast as the fastest of all, or
    the fastest that fits. None where none fits."""
    fitting = [plan for plan in plans if plan.size_bytes <= room]
    good = next((plan for plan in fitting if plan.cycles <= ENOUGH * plans[-1].cycles), None)
    return good or (fitting[-1] if fitting else None)


Use = tuple[int, int, int]
"""(call, its first step, its last step)."""


def _uses(steps: Sequence[Step], sizes: Mapping[int, int]) -> list[Use]:
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, step in enumerate(steps):
        for call in calls_in(step):
            if call in sizes:
                first.setdefault(call, place)
                last[call] = place
    return [(call, place, last[call]) for call, place in first.items()]


def _capacities(sizes: Sequence[int]) -> list[int]:
    """Buffer sizes worth a try: what any 1, 2, 3 ... constants in a row take."""
    sums = [0]
    for size in sizes:
        sums.append(sums[-1] + size)
    if not sizes:
        return [0]
    found = sorted({max(sums[i + n] - sums[i] for i in range(len(sizes) - n + 1)) for n in range(1, len(sizes) + 1)})
    if len(found) <= MOST_SIZES:
        return found
    return [found[place * (len(found) - 1) // (MOST_SIZES - 1)] for place in range(MOST_SIZES)]


def _with_fetches(
    steps: Sequence[Step], uses: Sequence[Use], sizes: Mapping[int, int], capacity: int
) -> tuple[Step, ...] | None:
    """The steps with a FETCH for each call as early as the ring has room, and a WAIT before the first step that reads it.

    None where something does not fit.
    """
    coming = deque(uses)
    held: deque[tuple[int, int, int]] = deque()  # start, end, last step
    ready: dict[int, int] = {}  # the channels of copies that nobody has waited for, by call
    needed: dict[int, list[int]] = {}
    for call, first, _ in uses:
        needed.setdefault(first, []).append(call)
    made: list[Step] = []
    head = issued = 0
    for place, step in enumerate(steps):
        while held and held[0][2] < place:
            held.popleft()
        while coming and len(ready) < CHANNELS:
            call, _, last = coming[0]
            start = _room(held, head, sizes[call], capacity)
            if start is None:
                break
            coming.popleft()
            held.append((start, start + sizes[call], last))
            head, ready[call] = start + sizes[call], issued % CHANNELS
            made.append(Fetch(call, start, issued % CHANNELS))
            issued += 1
        for call in needed.get(place, ()):
            if call not in ready:
                return None
            made.append(Wait(ready.pop(call)))
        made.append(step)
    return tuple(made)


def _room(held: deque[tuple[int, int, int]], head: int, size: int, capacity: int) -> int | None:
    """Where a piece goes in the ring: behind the youngest, or at the start again."""
    if not held:
        return 0 if size <= capacity else None
    oldest = held[0][0]
    if head > oldest:
        if head + size <= capacity:
            return head
        return 0 if size <= oldest else None
    return head if head + size <= oldest else None
