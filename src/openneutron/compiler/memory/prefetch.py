# SPDX-License-Identifier: BSD-3-Clause
"""Where and when constants come to SRAM, for a schedule whose tensors have addresses.

A constant takes bytes that no tensor and no other constant is live in, from its copy to the last step that reads it: beside
the tensors, or in those parts of the arena that are free for so long. Copies keep the order of their use. Each starts as early
as there is room.
"""

from __future__ import annotations

import dataclasses
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from openneutron.compiler.cost.cycles import call_cost, fetch_cycles
from openneutron.compiler.memory.layout import Layout
from openneutron.compiler.schedule.schedule import Fetch, Schedule, Step, Wait, Whole, calls_in, fetched_bytes
from openneutron.compiler.schedule.split import Cuttable, edges, split_calls
from openneutron.compiler.schedule.timeline import durations
from openneutron.compiler.select.storage import Storages
from openneutron.targets import Target

CHANNELS = 16
"""Copies under way at a time; the driver's NEUTRON_CHANNELS."""

ENDLESS = 1 << 40

ORDERS = LOWEST, HIGHEST, NEXT = ("lowest", "highest", "next")
"""Where a constant goes: to the lowest or the highest address with room, or to the next one behind the constant before it."""

Gap = tuple[int, int]

_Cut = tuple[list[int], list[int], list[tuple[int, int, int, int]], int, int]
"""With calls in pieces: the cycles of each step, which step of the schedule it is; for each constant its bytes, the cycles of its
copy, the first and the last step that read it; the cycles of all steps and of all copies."""


@dataclass(frozen=True, slots=True)
class Use:
    """A call's constants: their bytes, the first and the last step that read them, and how many blocks they can be cut into."""

    call: int
    size: int
    first: int
    last: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Trial:
    """Copies that are possible. ``counts`` are the pieces of calls that are cut, ``copies`` the step each one starts in front of
    (the steps of pieces counted) and its address, in the order of use. ``cycles``: with a port that copies in the background;
    ``size_bytes``: the SRAM that tensors and constants take."""

    counts: Mapping[int, int]
    copies: Sequence[tuple[int, int]]
    cycles: int
    size_bytes: int


@dataclass(slots=True)
class Copies:
    """What copies of constants a schedule can have. ``compute_cycles`` are those of its kernel calls, none of them cut."""

    schedule: Schedule
    layout: Layout
    storages: Storages
    target: Target
    compute_cycles: int = field(init=False)
    uses: tuple[Use, ...] = field(init=False)
    _spent: list[int] = field(init=False)
    _items: list[tuple[int, int, int, int]] = field(init=False)
    _least: list[tuple[int, int, int]] = field(init=False)
    _gaps: dict[tuple[int, int], list[Gap]] = field(default_factory=dict)
    _pieces: dict[tuple[int, int, bool], tuple[int, int]] = field(default_factory=dict)
    _last_cut: tuple[Mapping[int, int], _Cut] | None = None

    def __post_init__(self) -> None:
        computed = durations(self.schedule, self.target)
        self._spent = [computed[step] for step in self.schedule.steps]
        self.compute_cycles = sum(self._spent)
        self.uses = tuple(_uses(self.schedule, self.storages))
        offsets = self.layout.placement.offsets
        self._items = sorted((offsets[i.name], offsets[i.name] + i.size, i.first, i.last) for i in self.layout.items)
        self._least = self._least_of_steps()

    @property
    def arena_bytes(self) -> int:
        return self.layout.scratch_bytes

    @property
    def most_bytes(self) -> int:
        """Enough for everything at once."""
        return self.arena_bytes + sum(use.size for use in self.uses)

    def counts(self, capacity: int, share: float) -> dict[int, int]:
        """Calls in so many pieces that none takes more than this share of what is free in its step, if they can be cut so."""
        counts = {}
        for use in self.uses:
            if use.blocks > 1:
                free = max((min(end, capacity) - start for start, end in self._free(use.first, use.first)), default=0)
                at_once = max(1, use.blocks * max(0, int(free * share)) // use.size)
                if at_once < use.blocks:
                    counts[use.call] = -(-use.blocks // at_once)
        return counts

    def bound(self, capacity: int) -> int:
        """Cycles that no trial within ``capacity`` bytes stays below.

        While a step runs, memory holds what tensors leave room for: of constants those that it or a later step reads. All others
        that are read later are copied behind that step, one after the other.
        """
        rate = fetch_cycles(1 << 30, self.target) / (1 << 30)
        # Each piece's copy is rounded down to a cycle.
        rounded = sum(use.blocks for use in self.uses) + 1
        now = read = at = 0
        begun = 0.0  # when the first byte would have come, had bytes come without a pause since
        for step, (least, taken, gone) in enumerate(self._least):
            while at < len(self.uses) and self.uses[at].first == step:
                use = self.uses[at]
                read, at = read + use.size, at + 1
                there = int(begun + read * rate) - rounded
                # The last piece has work of its own left, which is not reckoned with.
                now = max(now, there - (least if use.blocks > 1 else 0))
            now += least
            begun = max(begun, now - (gone + capacity - taken) * rate)
        return now

    def smallest(self) -> Trial:
        """Everything in its smallest pieces, each copied right before its use: the least memory, and nothing is hidden."""
        counts = {use.call: use.blocks for use in self.uses if use.blocks > 1}
        trial = self.trial(counts, ENDLESS, ENDLESS, ahead=False)
        assert trial is not None
        return trial

    def trial(
        self, counts: Mapping[int, int], capacity: int, limit: int, ahead: bool = True, order: str = LOWEST
    ) -> Trial | None:
        """Copies for these pieces within ``capacity`` bytes of SRAM; None where they do not fit or take ``limit`` cycles or more.

        ``ahead``: copies start as early as they can. ``order``: one of ``ORDERS``.
        """
        if self._last_cut is None or self._last_cut[0] != counts:
            self._last_cut = counts, self._cut(counts)
        spent, steps, pieces, left, uncopied = self._last_cut[1]
        if max(left, uncopied) >= limit:
            return None
        held: list[tuple[int, int, int]] = []  # by address: start, end, the last step that reads it
        ready: dict[int, int] = {}  # when the last constant that a step waits for is there
        waiting: list[int] = []  # the steps that wait for the last CHANNELS copies
        copies: list[tuple[int, int]] = []
        now = copied = at = top = behind = 0
        for size, cycles, first, last in pieces:
            begin = at if ahead else first
            while True:
                if len(waiting) >= CHANNELS and waiting[-CHANNELS] >= begin:
                    begin = min(first, waiting[-CHANNELS] + 1)
                held = [piece for piece in held if piece[2] >= begin]
                free = self._free(steps[begin], steps[last])
                if order == HIGHEST:
                    place = _highest(free, held, size, capacity)
                else:
                    place = _lowest(free, held, size, capacity, behind if order == NEXT else 0)
                    if place < 0 and order == NEXT:
                        place = _lowest(free, held, size, capacity, 0)
                if place >= 0:
                    break
                # What is in the way goes earliest behind these.
                changed = begin + 1
                while changed <= first and steps[changed] == steps[begin] and all(end >= changed for _, _, end in held):
                    changed += 1
                begin = changed
                if begin > first:
                    return None
            for step in range(at, begin):
                now = max(now, ready.get(step, 0)) + spent[step]
                left -= spent[step]
            at = begin
            copied = max(now, copied) + cycles
            uncopied -= cycles
            ready[first] = copied
            if now + left >= limit or copied + uncopied >= limit:
                return None
            behind = place + size
            insort(held, (place, behind, last))
            waiting.append(first)
            top = max(top, behind)
            copies.append((begin, place))
        for step in range(at, len(spent)):
            now = max(now, ready.get(step, 0)) + spent[step]
        return Trial(counts, copies, now, max(top, self.arena_bytes)) if now < limit else None

    def made(self, trial: Trial) -> Schedule:
        """The schedule with the trial's copies as steps; ``Fetch.destination`` is its address among the tensors'."""
        cut = split_calls(self.schedule, self.storages, trial.counts) if trial.counts else self.schedule
        uses = list(_uses(cut, self.storages))
        starting: dict[int, list[Step]] = {}
        ending: dict[int, list[Step]] = {}
        for index, (use, (begin, place)) in enumerate(zip(uses, trial.copies, strict=True)):
            starting.setdefault(begin, []).append(Fetch(use.call, place, index % CHANNELS))
            ending.setdefault(use.first, []).append(Wait(index % CHANNELS))
        steps: list[Step] = []
        for index, step in enumerate(cut.steps):
            steps += [*starting.get(index, ()), *ending.get(index, ()), step]
        return dataclasses.replace(cut, steps=tuple(steps))

    def _cut(self, counts: Mapping[int, int]) -> _Cut:
        """See ``_Cut``."""
        spent: list[int] = []
        steps: list[int] = []
        at: list[int] = []
        cut: dict[int, list[tuple[int, int]]] = {}
        for use in self.uses:
            if use.call in counts:
                cut[use.first] = [self._piece(use, *edge) for edge in edges(use.blocks, counts[use.call])]
        for step, cycles in enumerate(self._spent):
            at.append(len(spent))
            for part in [cycles for _, cycles in cut[step]] if step in cut else [cycles]:
                spent.append(part)
                steps.append(step)
        pieces = []
        for use in self.uses:
            if use.call in counts:
                for index, (size, _) in enumerate(cut[use.first], at[use.first]):
                    pieces.append((size, fetch_cycles(size, self.target), index, index))
            else:
                pieces.append((use.size, fetch_cycles(use.size, self.target), at[use.first], at[use.last]))
        return spent, steps, pieces, sum(spent), sum(cycles for _, cycles, _, _ in pieces)

    def _piece(self, use: Use, first: int, last: int) -> tuple[int, int]:
        """Bytes and cycles of a call's blocks [first, last)."""
        key = use.call, last - first, last == use.blocks
        found = self._pieces.get(key)
        if found is None:
            cuttable = Cuttable(self.schedule.calls[use.call], self.storages)
            cost = call_cost(cuttable.piece(first, last, ""), self.target)
            found = self._pieces[key] = cuttable.piece_bytes(last - first), cost.cycles
        return found

    def _least_of_steps(self) -> list[tuple[int, int, int]]:
        """For each step the least cycles, the bytes that tensors take, and those of constants that are behind it at its end."""
        gone = [0] * len(self._spent)
        least = [*self._spent]
        for use in self.uses:
            if use.blocks > 1:
                # Fewer than 8 channels of the last block may take less in a piece of their own.
                least[use.first] = self._piece(use, 0, use.blocks - 1)[1]
            ended = use.last if use.blocks > 1 else use.last + 1
            if ended < len(gone):
                gone[ended] += use.size
        gone = [*accumulate(gone)]
        free = [sum(end - start for start, end in self._free(step, step)) for step in range(len(gone))]
        return [(cycles, ENDLESS - there, behind) for cycles, there, behind in zip(least, free, gone, strict=True)]

    def _free(self, first: int, last: int) -> list[Gap]:
        """The addresses that no tensor takes in steps ``first`` to ``last``."""
        gaps = self._gaps.get((first, last))
        if gaps is None:
            gaps, end = [], 0
            for start, behind, born, dead in self._items:
                if born <= last and first <= dead:
                    if start > end:
                        gaps.append((end, start))
                    end = max(end, behind)
            gaps.append((end, ENDLESS))
            self._gaps[first, last] = gaps
        return gaps


def _uses(schedule: Schedule, storages: Storages) -> list[Use]:
    """The constants in the order of their first use."""
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
            uses.append(Use(call, size, place, last[call], blocks))
    return uses


Held = Sequence[tuple[int, int, int]]
"""Constants in order of their addresses: start, end, and the last step that reads them."""


def _lowest(gaps: Sequence[Gap], held: Held, size: int, capacity: int, above: int) -> int:
    """The lowest address from ``above`` on with ``size`` bytes free below ``capacity``, or -1."""
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


def _highest(gaps: Sequence[Gap], held: Held, size: int, capacity: int) -> int:
    """The highest address with ``size`` bytes free below ``capacity``, or -1."""
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
