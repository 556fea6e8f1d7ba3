# SPDX-License-Identifier: BSD-3-Clause
"""Model the time of a run in which a copy engine works in parallel to kernels.

One copy engine makes all copies, one after the other. Tiles of tensors (calls of transfers) have priority over constants, which is
assumed. The copy of a tile starts when its call is reached and the previous tiles are copied. Constants are copied in the order of
their FETCH while no tile is copied. Example: a step of 10 cycles runs in parallel to the copies of a tile (4 cycles) and a constant
(8 cycles). At the end of the step 6 of the constant's 8 cycles have passed, and a WAIT for the constant takes the other 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from openneutron.compiler.cost.cycles import fetch_cycles
from openneutron.compiler.schedule.schedule import Fetch, Loop, Rows, Schedule, Step, Wait, Whole, part_cycles
from openneutron.targets import Target


@dataclass(slots=True)
class CopyEngine:
    """The state of the copy engine at the time ``now``, in cycles from the start of the run.

    The copies of all tiles started so far end at the time ``moved``. The copies of all constants started so far take ``asked``
    cycles, of which ``fetched`` have passed.
    """

    now: int = 0
    moved: int = 0
    asked: int = 0
    fetched: int = 0

    def advance(self, now: int) -> None:
        """Advance to the time ``now``, and copy constants in the cycles without tiles."""
        free = now - max(self.now, self.moved)
        if free > 0:
            self.fetched = min(self.asked, self.fetched + free)
        self.now = now

    def move(self, cycles: int) -> int:
        """Start the copy of a tile that takes ``cycles``, and return the time at which it ends."""
        self.moved = max(self.now, self.moved) + cycles
        return self.moved

    def fetch(self, cycles: int) -> int:
        """Start the copy of a constant that takes ``cycles``. Return a number that ``arrival`` turns into the time of its end."""
        self.asked += cycles
        return self.asked

    def arrival(self, asked: int) -> int:
        """Return the time at which the copy of a constant ends if no further tile starts before it.

        ``asked`` is the result of ``fetch`` for this constant. The time is ``now`` if the copy has ended.
        """
        if asked <= self.fetched:
            return self.now
        return max(self.now, self.moved) + asked - self.fetched


@dataclass(frozen=True, slots=True)
class StepTime:
    """The time of one step. ``spent`` are the cycles from the end of the previous step to its own end.

    ``moving`` is the part of ``spent`` in which tiles are copied.
    """

    spent: int
    moving: int


@dataclass(slots=True)
class Timeline:
    """The model of a run, step by step.

    ``sizes`` are the bytes of each call's constants, by the call's index. ``computed`` is the sum of the cycles of all kernel calls
    so far, without transfers.
    """

    schedule: Schedule
    sizes: Mapping[int, int]
    target: Target
    engine: CopyEngine = field(default_factory=CopyEngine)
    computed: int = 0
    _moves: dict[int, int] = field(default_factory=dict)
    _fetches: dict[int, int] = field(default_factory=dict)
    _cycles: dict[Rows | Whole, int] = field(default_factory=dict)

    def run(self) -> list[StepTime]:
        """Run all steps of the schedule, and return the time of each. The cost of starting a copy is unknown and not counted."""
        times = []
        for step in self.schedule.steps:
            before, moved = self.engine.now, self.engine.moved
            self._step(step)
            times.append(StepTime(self.engine.now - before, self._moving(before, moved)))
        return times

    def _moving(self, before: int, moved: int) -> int:
        """Return the cycles in which tiles were copied from the time ``before`` until now.

        At the time ``before``, the copies of the tiles were expected to end at the time ``moved``.
        """
        engine, copied = self.engine, self._moved
        self._moved = 0
        return copied + max(0, moved - before) - max(0, engine.moved - engine.now)

    _moved: int = 0

    def _step(self, step: Step) -> None:
        if isinstance(step, Loop):
            for _ in range(step.count):
                for part in step.body:
                    self._part(part)
        elif isinstance(step, Fetch):
            self._fetches[step.channel] = self.engine.fetch(fetch_cycles(self.sizes[step.call], self.target))
        else:
            self._part(step)

    def _part(self, part: Rows | Whole | Wait) -> None:
        engine = self.engine
        if isinstance(part, Wait):
            # A channel copies either tiles or constants, never both.
            ends = self._moves.pop(part.channel, engine.now)
            if part.channel in self._fetches:
                ends = max(ends, engine.arrival(self._fetches.pop(part.channel)))
            engine.advance(max(engine.now, ends))
            return
        cycles = self._cycles.get(part)
        call = self.schedule.calls[part.call]
        if cycles is None:
            cycles = self._cycles[part] = part_cycles(part, call, self.target)
        if call.is_transfer:
            self._moved += cycles
            self._moves[call.params["channel"]] = engine.move(cycles)
        else:
            self.computed += cycles
            engine.advance(engine.now + cycles)


def overlapped_cycles(schedule: Schedule, sizes: Mapping[int, int], target: Target) -> int:
    """Return the cycles of a run in which a port copies in the background; for ``sizes`` see ``Timeline``."""
    line = Timeline(schedule, sizes, target)
    line.run()
    return line.engine.now
