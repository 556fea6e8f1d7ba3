# SPDX-License-Identifier: BSD-3-Clause
"""Plan the constant prefetch: when each constant is copied from flash to SRAM, for a schedule whose tensors have
addresses.

From its copy to the last step that reads it, a constant needs bytes that no tensor and no other constant uses. These
bytes are behind the arena, or in a part of the arena that is free in all of these steps. ``PrefetchTrial`` has a worked
example.

A port that copies in the background copies the next constants while a kernel computes. Without such a port a copy
blocks, and the same program takes the sum of both times. With more memory, copies start earlier. With less memory,
whole convolutions are divided into pieces by output channels. A candidate is an amount of memory, and the number of
pieces of each divided call. The candidates of a schedule do not depend on the budget, so that a larger budget never
gives a slower program.
"""

from __future__ import annotations

import dataclasses
import itertools
from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from openneutron.compiler.cost.cycles import call_cost, fetch_cycles
from openneutron.compiler.place.place import Layout, laid_out_at
from openneutron.compiler.schedule.schedule import (
    Cuttable,
    Fetch,
    Schedule,
    Step,
    Timeline,
    Wait,
    Whole,
    calls_in,
    edges,
    fetched_bytes,
    split_calls,
)
from openneutron.compiler.select.calls import Storages
from openneutron.isa import aligned
from openneutron.targets import Target

CHANNELS = 16
"""The number of channels of the copy engine, and so the largest number of copies in flight; the driver's
NEUTRON_CHANNELS."""

CONSTANT_CHANNELS = 14
"""The number of channels for constants in a schedule that copies tensors too. Tensors use the last two of ``CHANNELS``."""

ORDERS = LOWEST, HIGHEST, NEXT = ("lowest", "highest", "next")
"""The rules for the address of a constant: the lowest free address, the highest one, or the lowest one behind the
constant that was copied last (next fit).

If no address behind that constant is free, ``NEXT`` takes the lowest free address.
"""

Gap = tuple[int, int]
"""A range [start, end) of free addresses."""


class Transfer(NamedTuple):
    """The copy of the constants of one call, or of one piece of a divided call: its bytes and cycles, and the first
    and the last step that read the constants."""

    size: int
    cycles: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class CutSteps:
    """The steps of a schedule in which some calls are divided into pieces, where each piece is a step of its own.

    ``spent`` has the cycles of each step. ``moving`` has the part of these cycles in which the step copies tiles of
    tensors, so that copies of constants must wait. ``origins`` has for each step the index of the step of the
    undivided schedule to which it belongs. ``transfers`` are the copies of constants. ``compute_cycles`` is the sum
    of ``spent``, and ``copy_cycles`` the sum over ``transfers``.
    """

    spent: Sequence[int]
    origins: Sequence[int]
    transfers: Sequence[Transfer]
    compute_cycles: int
    copy_cycles: int
    moving: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class PrefetchTrial:
    """A feasible prefetch: the start and the address of each copy, and the modelled cycles and memory of the run.

    Copies keep the order of their use, and one transfer runs at a time. With ``ahead``, each copy starts at the
    earliest step from which on its bytes are free until the last step that reads them; without it, right before the
    first step that reads them. Example with ``ahead``: three steps of 10 cycles each read the constants a, b and c of 2 KiB; a copy takes
    6 cycles. With 4 KiB free, only the copy of a takes time. The copy of b fits beside a, and c replaces a after step 0::

        cycle     0     6         16        26        36
        copies    aaaaaabbbbbb    cccccc
        steps           000000000011111111112222222222

    With 2 KiB free, each copy waits for the step before, and nothing is hidden: the run takes 3 * (6 + 10) = 48 cycles.

    ``counts`` has the number of pieces of each divided call. ``copies`` has for each copy, in the order of use, the step before which it
    starts, where each piece counts as a step, and its address. ``cycles`` are those of a run with a port that copies in the background.
    ``size_bytes`` is the SRAM of tensors and constants together.
    """

    counts: Mapping[int, int]
    copies: Sequence[tuple[int, int]]
    cycles: int
    size_bytes: int


@dataclass(slots=True)
class Simulation:
    """The state of a simulated run, to which copies and steps are added one by one.

    ``free(first, last)`` returns the addresses that no tensor uses in steps ``first`` to ``last`` of the undivided schedule. ``held`` has
    the constants in SRAM, sorted by address: start, end, and the last step that reads the constant. ``ready`` has for each step that
    waits for copies the cycle at which the last of these copies ends. ``now`` is the cycle at which step ``step`` can begin. ``top`` is
    the highest end address of all constants so far, ``behind`` that of the constant that was copied last.
    """

    cut: CutSteps
    free: Callable[[int, int], Sequence[Gap]]
    capacity: int
    order: str
    channels: int = CHANNELS
    held: list[tuple[int, int, int]] = field(default_factory=list)
    ready: dict[int, int] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)
    """The step that waits for each copy so far."""
    copies: list[tuple[int, int]] = field(default_factory=list)
    step: int = 0
    """The next step to compute."""
    now: int = 0
    copied: int = 0
    """The cycle at which the last copy so far ends."""
    top: int = 0
    behind: int = 0

    def run(self, limit: int, ahead: bool) -> bool:
        """Simulate all copies and steps. Return False if a copy does not fit, or the run takes ``limit`` cycles or more.

        With ``ahead``, each copy starts as early as possible; without it, right before the step that reads the constant.
        """
        computing, copying = self.cut.compute_cycles, self.cut.copy_cycles
        if max(computing, copying) >= limit:
            return False
        for transfer in self.cut.transfers:
            found = self._earliest(transfer, self.step if ahead else transfer.first)
            if found is None:
                return False
            begin, address = found
            computing -= self._compute_up_to(begin)
            copying -= transfer.cycles
            self._start(transfer, address)
            if self.now + computing >= limit or self.copied + copying >= limit:
                return False
        self._compute_up_to(len(self.cut.spent))
        return self.now < limit

    def _earliest(self, transfer: Transfer, begin: int) -> tuple[int, int] | None:
        """Return the first step from ``begin`` on before which the copy can start, and its address; None if there is no such step."""
        first = transfer.first
        while begin <= first:
            if len(self.waiting) >= self.channels and self.waiting[-self.channels] >= begin:
                # A step must have waited for the copy that used this channel before.
                begin = min(first, self.waiting[-self.channels] + 1)
            self.held = [piece for piece in self.held if piece[2] >= begin]
            origins = self.cut.origins
            address = self._address(self.free(origins[begin], origins[transfer.last]), transfer.size)
            if address >= 0:
                return begin, address
            begin = self._next_change(begin, first)
        return None

    def _next_change(self, begin: int, first: int) -> int:
        """Return the first step after ``begin`` at which the free addresses may be different. Return ``first + 1`` if
        there is no such step up to ``first``.

        Pieces of one call use the same tensors. So between two pieces, addresses become free only if a constant was
        read for the last time.
        """
        origins, changed = self.cut.origins, begin + 1
        while (
            changed <= first and origins[changed] == origins[begin] and all(last >= changed for _, _, last in self.held)
        ):
            changed += 1
        return changed

    def _address(self, gaps: Sequence[Gap], size: int) -> int:
        """Return an address with ``size`` free bytes according to the rule ``order``; -1 if there is none."""
        if self.order == HIGHEST:
            return highest(gaps, self.held, size, self.capacity)
        if self.order == NEXT:
            address = lowest(gaps, self.held, size, self.capacity, self.behind)
            if address >= 0:
                return address
        return lowest(gaps, self.held, size, self.capacity, 0)

    def _compute_up_to(self, end: int) -> int:
        """Compute the steps before step ``end``, each as soon as its constants have arrived. Return the sum of their
        cycles without waits."""
        computed = 0
        for step in range(self.step, end):
            spent, begun = self.cut.spent[step], max(self.now, self.ready.get(step, 0))
            if self.cut.moving and self.cut.moving[step]:
                self._delay(step, begun)
            self.now = begun + spent
            computed += spent
        self.step = end
        return computed

    def _delay(self, step: int, begun: int) -> None:
        """Delay all copies of constants that are not finished at cycle ``begun``, when ``step`` begins. The delay is
        the number of cycles in which the step copies tiles."""
        if self.copied > begun:
            self.copied += self.cut.moving[step]
            for later, there in self.ready.items():
                if later > step and there > begun:
                    self.ready[later] = there + self.cut.moving[step]

    def _start(self, transfer: Transfer, address: int) -> None:
        self.copied = max(self.now, self.copied) + transfer.cycles
        self.ready[transfer.first] = self.copied
        self.waiting.append(transfer.first)
        self.behind = address + transfer.size
        insort(self.held, (address, self.behind, transfer.last))
        self.top = max(self.top, self.behind)
        self.copies.append((self.step, address))


def lowest(gaps: Sequence[Gap], held: Sequence[tuple[int, int, int]], size: int, capacity: int, above: int) -> int:
    """Return the lowest address, at or above ``above``, with ``size`` free bytes below ``capacity``; -1 if there is
    none.

    ``gaps`` are the addresses without tensors. ``held`` has the constants (start, end, last step) in SRAM, sorted by
    address; they may be inside the gaps.
    """
    for start, end in gaps:
        end = min(end, capacity)
        start = max(start, above)
        for begin, behind, _ in held:
            if behind <= start:
                continue
            if begin - start >= size or begin >= end:
                break
            start = behind
        if end - start >= size:
            return start
    return -1


def highest(gaps: Sequence[Gap], held: Sequence[tuple[int, int, int]], size: int, capacity: int) -> int:
    """Return the highest address with ``size`` free bytes below ``capacity``; -1 if there is none. ``gaps`` and
    ``held`` are those of ``lowest``."""
    for start, end in reversed(gaps):
        end = min(end, capacity)
        for begin, behind, _ in reversed(held):
            if begin >= end:
                continue
            if end - behind >= size or behind <= start:
                break
            end = begin
        if end - start >= size:
            return end - size
    return -1


ENDLESS = 1 << 40
"""A number of bytes, or of cycles, that no program reaches."""


@dataclass(frozen=True, slots=True)
class ConstantUse:
    """The constants of one call: their bytes, the first and the last step that read them, and the number of blocks of
    output channels into which the call can be divided (1 if it can't be divided)."""

    call: int
    size: int
    first: int
    last: int
    blocks: int


@dataclass(slots=True)
class PrefetchSearch:
    """The search for prefetches of one schedule. ``compute_cycles`` is the sum of the cycles of the schedule's steps if
    no call is divided."""

    schedule: Schedule
    layout: Layout
    storages: Storages
    target: Target
    channels: int = field(init=False)
    compute_cycles: int = field(init=False)
    uses: tuple[ConstantUse, ...] = field(init=False)
    _spent: list[int] = field(init=False)
    _moving: list[int] = field(init=False)
    _items: list[tuple[int, int, int, int]] = field(init=False)
    _least: list[tuple[int, int, int]] = field(init=False, default_factory=list)
    _gaps: dict[tuple[int, int], list[Gap]] = field(default_factory=dict)
    _pieces: dict[tuple[int, int, bool], tuple[int, int]] = field(default_factory=dict)
    _last_cut: tuple[Mapping[int, int], CutSteps] | None = None

    def __post_init__(self) -> None:
        self.channels = CONSTANT_CHANNELS if self.schedule.is_tiled else CHANNELS
        times = Timeline(self.schedule, {}, self.target).run()
        self._spent, self._moving = [each.spent for each in times], [each.moving for each in times]
        self.compute_cycles = sum(self._spent)
        self.uses = tuple(_uses(self.schedule, self.storages))
        offsets = self.layout.placement.offsets
        self._items = sorted((offsets[i.name], offsets[i.name] + i.size, i.first, i.last) for i in self.layout.items)

    @property
    def arena_bytes(self) -> int:
        return self.layout.scratch_bytes

    @property
    def most_bytes(self) -> int:
        """Return the size of the arena and of all constants together, a size with which every prefetch fits."""
        return self.arena_bytes + sum(use.size for use in self.uses)

    def counts(self, capacity: int, share: float) -> dict[int, int]:
        """Return the calls that must be divided if constants and tensors have ``capacity`` bytes, each with its
        number of pieces.

        The constants of a piece take at most ``share`` of the largest free range below ``capacity`` in the first step
        that reads them. A piece has at least one block of output channels, even if that takes more.
        """
        counts = {}
        for use in self.uses:
            if use.blocks > 1:
                free = max((min(end, capacity) - start for start, end in self._free(use.first, use.first)), default=0)
                at_once = max(1, use.blocks * max(0, int(free * share)) // use.size)
                if at_once < use.blocks:
                    counts[use.call] = -(-use.blocks // at_once)
        return counts

    def bound(self, capacity: int) -> int:
        """Return a number of cycles that no prefetch within ``capacity`` bytes can go below.

        The bound assumes that in each step, all memory without tensors can hold constants for this and later steps.
        Constants for later steps that do not fit there are copied after the step, one after the other.
        """
        self._least = self._least or self._least_of_steps()
        rate = fetch_cycles(1 << 30, self.target) / (1 << 30)
        # Each piece's copy is rounded down to a cycle.
        rounded = sum(use.blocks for use in self.uses) + 1
        now = read = at = 0
        # The first n bytes of all constants, if not complete yet, are complete at begun + n * rate or later.
        begun = 0.0
        for step, (least, taken, gone) in enumerate(self._least):
            while at < len(self.uses) and self.uses[at].first == step:
                use = self.uses[at]
                read, at = read + use.size, at + 1
                there = int(begun + read * rate) - rounded
                # Of a call that can be divided, only the last piece waits for the last bytes. Its cycles are taken as 0.
                now = max(now, there - (least if use.blocks > 1 else 0))
            now += least
            begun = max(begun, now - (gone + capacity - taken) * rate)
        return now

    def smallest(self) -> PrefetchTrial:
        """Return the trial with the least memory: all calls are divided into their smallest pieces, and each constant
        is copied right before its use."""
        counts = {use.call: use.blocks for use in self.uses if use.blocks > 1}
        trial = self.trial(counts, ENDLESS, ENDLESS, ahead=False)
        assert trial is not None
        return trial

    def trial(
        self, counts: Mapping[int, int], capacity: int, limit: int, ahead: bool = True, order: str = LOWEST
    ) -> PrefetchTrial | None:
        """Return a prefetch within ``capacity`` bytes of SRAM, with calls divided into ``counts`` pieces.

        Return None if the copies do not fit, or the run takes ``limit`` cycles or more. ``Simulation.run`` describes ``ahead``;
        ``order`` is one of ``ORDERS``.
        """
        if self._last_cut is None or self._last_cut[0] != counts:
            self._last_cut = counts, self._cut(counts)
        simulation = Simulation(self._last_cut[1], self._free, capacity, order, self.channels)
        if not simulation.run(limit, ahead):
            return None
        return PrefetchTrial(counts, simulation.copies, simulation.now, max(simulation.top, self.arena_bytes))

    def made(self, trial: PrefetchTrial) -> Schedule:
        """Return the schedule that includes the copies of a trial as steps. ``Fetch.destination`` counts from the start
        of the arena."""
        cut = split_calls(self.schedule, self.storages, trial.counts) if trial.counts else self.schedule
        uses = list(_uses(cut, self.storages))
        starting: dict[int, list[Step]] = {}
        ending: dict[int, list[Step]] = {}
        for index, (use, (begin, address)) in enumerate(zip(uses, trial.copies, strict=True)):
            starting.setdefault(begin, []).append(Fetch(use.call, address, index % self.channels))
            ending.setdefault(use.first, []).append(Wait(index % self.channels))
        steps: list[Step] = []
        for index, step in enumerate(cut.steps):
            steps += [*starting.get(index, ()), *ending.get(index, ()), step]
        return dataclasses.replace(cut, steps=tuple(steps))

    def _cut(self, counts: Mapping[int, int]) -> CutSteps:
        pieces = {
            use.first: [self._piece(use, *edge) for edge in edges(use.blocks, counts[use.call])]
            for use in self.uses
            if use.call in counts
        }
        spent: list[int] = []
        moving: list[int] = []
        origins: list[int] = []
        starts: list[int] = []
        for step, cycles in enumerate(self._spent):
            starts.append(len(spent))
            parts = [cycles for _, cycles in pieces[step]] if step in pieces else [cycles]
            spent += parts
            moving += [self._moving[step], *[0] * (len(parts) - 1)]
            origins += [step] * len(parts)
        transfers: list[Transfer] = []
        for use in self.uses:
            if use.call in counts:
                for index, (size, _) in enumerate(pieces[use.first], starts[use.first]):
                    transfers.append(self._transfer(size, index, index))
            else:
                transfers.append(self._transfer(use.size, starts[use.first], starts[use.last]))
        copying = sum(transfer.cycles for transfer in transfers)
        return CutSteps(spent, origins, transfers, sum(spent), copying, moving)

    def _transfer(self, size: int, first: int, last: int) -> Transfer:
        return Transfer(size, fetch_cycles(size, self.target), first, last)

    def _piece(self, use: ConstantUse, first: int, last: int) -> tuple[int, int]:
        """Return the bytes of the constants, and the cycles, of the piece of a call with the blocks [first, last)."""
        key = use.call, last - first, last == use.blocks
        found = self._pieces.get(key)
        if found is None:
            cuttable = Cuttable(self.schedule.calls[use.call], self.storages)
            cost = call_cost(cuttable.piece(first, last, ""), self.target)
            found = self._pieces[key] = cuttable.piece_bytes(last - first), cost.cycles
        return found

    def _least_of_steps(self) -> list[tuple[int, int, int]]:
        """Return for each step a lower bound of its cycles, the bytes of its tensors, and the bytes of constants no longer needed."""
        gone = [0] * len(self._spent)
        least = [*self._spent]
        for use in self.uses:
            if use.blocks > 1:
                # A last block of fewer than 8 channels may take fewer cycles in a piece of its own.
                least[use.first] = self._piece(use, 0, use.blocks - 1)[1]
            ended = use.last if use.blocks > 1 else use.last + 1
            if ended < len(gone):
                gone[ended] += use.size
        gone = [*accumulate(gone)]
        free = [sum(end - start for start, end in self._free(step, step)) for step in range(len(gone))]
        return [(cycles, ENDLESS - there, behind) for cycles, there, behind in zip(least, free, gone, strict=True)]

    def _free(self, first: int, last: int) -> list[Gap]:
        gaps = self._gaps.get((first, last))
        if gaps is None:
            gaps, end = [], 0
            for start, behind, defined, last_used in self._items:
                if defined <= last and first <= last_used:
                    if start > end:
                        gaps.append((end, start))
                    end = max(end, behind)
            gaps.append((end, ENDLESS))
            self._gaps[first, last] = gaps
        return gaps


def _uses(schedule: Schedule, storages: Storages) -> list[ConstantUse]:
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    whole = set()
    for place, step in enumerate(schedule.steps):
        for call in calls_in(step):
            first.setdefault(call, place)
            last[call] = place
        if isinstance(step, Whole):
            whole.add(step.call)
    uses = []
    for call, place in first.items():
        size = fetched_bytes(schedule.calls[call], storages)
        if size:
            blocks = Cuttable(schedule.calls[call], storages).blocks if call in whole else 1
            uses.append(ConstantUse(call, size, place, last[call], blocks))
    return uses


SHARES = (1.0, 0.7, 0.5, 0.33, 0.25, 0.2)
"""The shares of the free bytes that are tried as the maximum for the constants of a piece. With a half, the next piece
can be copied while one piece is in use."""

FIRST_CAPACITY = 1024
"""The smallest size of memory that is tried, in bytes. Each further size is about 1/32 larger than the size before it."""

ENOUGH = 1.002
"""Plans for whole tensors whose cycles are within this ratio of the fewest cycles count as equally fast, and the one
with the least memory is taken."""


@dataclass(frozen=True, slots=True)
class PrefetchPlan:
    """A schedule with a prefetch: ``trial`` is the prefetch, and ``search`` has the schedule.

    ``cycles`` are those of a run with a port that copies in the background. For each budget of at least
    ``budget_bytes``, ``fastest_plan`` returns this plan or a faster one.
    """

    search: PrefetchSearch
    trial: PrefetchTrial
    budget_bytes: int

    @property
    def cycles(self) -> int:
        return self.trial.cycles

    @property
    def size_bytes(self) -> int:
        """Return the bytes of SRAM that tensors and constants take together."""
        return self.trial.size_bytes

    def laid_out(self, io: str) -> tuple[Schedule, Layout]:
        """Return the schedule with its copies, and its layout.

        The arena ends with its last tensor. If a constant lies across this end, the arena ends with that constant.
        The prefetch buffer follows and has the other constants above the arena. For a schedule in tiles, the arena
        contains all constants.
        """
        search = self.search
        schedule, end = search.made(self.trial), search.arena_bytes
        places = sorted(
            (step.destination, step.destination + fetched_bytes(schedule.calls[step.call], search.storages))
            for step in schedule.steps
            if isinstance(step, Fetch)
        )
        for _ in places:
            end = max([end, *(behind for start, behind in places if start < end or schedule.is_tiled)])
        schedule = dataclasses.replace(schedule, prefetch_bytes=max(0, self.size_bytes - end))
        layout = laid_out_at(search.layout.placement, schedule, search.storages, io)
        return schedule, dataclasses.replace(layout, placement=dataclasses.replace(layout.placement, size=end))


def good_plan(search: PrefetchSearch) -> PrefetchPlan:
    """Return the plan of the least memory that takes at most ``ENOUGH`` times the cycles of a plan with unlimited memory."""
    best = search.trial({}, ENDLESS, ENDLESS)
    assert best is not None
    enough = int(best.cycles * ENOUGH) + 1
    for capacity in _capacities(search, search.smallest()):
        if search.bound(capacity) >= enough:
            continue
        found = fastest_within(search, capacity, enough)
        if found is not None:
            return PrefetchPlan(search, found, found.size_bytes)
    return PrefetchPlan(search, best, best.size_bytes)


def fastest_plan(families: Iterable[Iterable[PrefetchSearch]], budget: int, least_cycles: int) -> PrefetchPlan | int:
    """Return the fastest plan that takes at most ``budget`` bytes and at least ``least_cycles`` cycles. If there is
    none, return the bytes of the smallest plan.

    A family is a series of schedules in ascending order of their compute cycles. The search of a family ends at the
    first schedule that can't be faster than the best plan so far.
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
                found = fastest_within(search, capacity, limit, least_cycles)
                if found is not None:
                    best, limit = PrefetchPlan(search, found, capacity), found.cycles
    return least if best is None else best


def all_plans(schedules: Iterable[PrefetchSearch], least_cycles: int = 0) -> tuple[PrefetchPlan, ...]:
    """Return the Pareto front of plans with at least ``least_cycles`` cycles: in ascending order of memory, each faster
    than all plans with less memory."""
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
        trial = fastest_within(search, capacity, limit, least_cycles)
        if trial is None and len([*again]) > 1 and least_cycles <= search.smallest().cycles < limit:
            trial = search.smallest()
        if trial is not None:
            if found and found[-1].budget_bytes == capacity:
                found.pop()
            found.append(PrefetchPlan(search, trial, capacity))
            limit = trial.cycles
    return tuple(found)


def _capacities(search: PrefetchSearch, smallest: PrefetchTrial) -> list[int]:
    """Return the amounts of memory, in bytes, that are tried for a schedule, ascending. They do not depend on the
    budget."""
    found = [smallest.size_bytes]
    capacity = FIRST_CAPACITY
    while capacity < search.most_bytes:
        capacity += aligned(capacity // 32)
        if capacity > smallest.size_bytes:
            found.append(capacity)
    return found


def fastest_within(search: PrefetchSearch, capacity: int, limit: int, least_cycles: int = 0) -> PrefetchTrial | None:
    """Return the fastest trial in ``capacity`` bytes whose cycles are at least ``least_cycles`` and less than
    ``limit``; None if there is none."""
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
