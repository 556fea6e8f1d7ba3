# SPDX-License-Identifier: BSD-3-Clause
"""Model the time of a run whose copies run in parallel to kernels.

One copy engine makes all copies, one byte after the other. Tiles of tensors (calls of transfers) have priority over constants: a tile's copy
starts when its call is reached and the tiles before it are done. Constants are copied in the order of their FETCH while no tile is
copied. The priority is assumed. Example: a step of 10 cycles runs beside a tile of 4 cycles and a constant of 8; the constant
has 6 of its 8 cycles at the end of the step, and a WAIT for it takes the other 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from openneutron.compiler.cost.cycles import fetch_cycles
from openneutron.compiler.schedule.schedule import Fetch, Loop, Rows, Schedule, Step, Wait, Whole, part_cycles
from openneutron.targets import Target


@dataclass(slots=True)
class CopyEngine:
    """The state of the copies at a time ``now``: tiles end at ``moved``; of ``asked`` cycles of constants ``fetched`` are done."""

    now: int = 0
    moved: int = 0
    asked: int = 0
    fetched: int = 0

    def advance(self, now: int) -> None:
        """Advance to a later time."""
        free = now - max(self.now, self.moved)
        if free > 0:
            self.fetched = min(self.asked, self.fetched + free)
        self.now = now

    def move(self, cycles: int) -> int:
        """Start the copy of a tile and return the time of its end."""
        self.moved = max(self.now, self.moved) + cycles
        return self.moved

    def fetch(self, cycles: int) -> int:
        """Start the copy of a constant; ``arrival`` takes the result."""
        self.asked += cycles
        return self.asked

    def arrival(self, asked: int) -> int:
        """Return the time at which a constant is copied, if no tile starts before this time."""
        if asked <= self.fetched:
            return self.now
        return max(self.now, self.moved) + asked - self.fetched


@dataclass(frozen=True, slots=True)
class StepTime:
    """The cycles from the end of the previous step to the end of this one, and the part of these cycles in which tiles are copied."""

    spent: int
    moving: int


@dataclass(slots=True)
class Timeline:
    """A run, modelled step by step. ``sizes`` are the bytes of each call's constants, by the call's index."""

    schedule: Schedule
    sizes: Mapping[int, int]
    target: Target
    engine: CopyEngine = field(default_factory=CopyEngine)
    computed: int = 0
    _moves: dict[int, int] = field(default_factory=dict)
    _fetches: dict[int, int] = field(default_factory=dict)
    _cycles: dict[Rows | Whole, int] = field(default_factory=dict)

    def run(self) -> list[StepTime]:
        """Return the time of each step. The cost of starting a copy is unknown and not counted."""
        times = []
        for step in self.schedule.steps:
            before, moved = self.engine.now, self.engine.moved
            self._step(step)
            times.append(StepTime(self.engine.now - before, self._moving(before, moved)))
        return times

    def _moving(self, before: int, moved: int) -> int:
        """Return the cycles of tiles since ``before``, a time at which tiles were expected to end at ``moved``."""
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
            # A channel has either tiles or constants.
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
    """Return the cycles of a run with a port that copies in the background; ``sizes``: see ``Timeline``."""
    line = Timeline(schedule, sizes, target)
    line.run()
    return line.engine.now
