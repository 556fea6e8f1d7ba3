# SPDX-License-Identifier: BSD-3-Clause
"""Measure the time of each step of a compile."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from openneutron.options import Progress, silent


@runtime_checkable
class Remarking(Protocol):
    """A progress function that can also show a remark beside a step, such as the best result of a search so far."""

    def remark(self, step: str, text: str) -> None: ...


def remark_on(progress: Progress, step: str, text: str) -> None:
    """Show a remark beside a step, if ``progress`` can show remarks."""
    if isinstance(progress, Remarking):
        progress.remark(step, text)


OTHER = "Other"
"""The name of the entry for time outside of all steps."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """The seconds of a step, without those of the steps inside it.

    ``cpu_seconds`` is the CPU time of all threads of this process.
    """

    step: str
    wall_seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Timings:
    """The times of all steps, in the order in which the steps began. Their sum is the total time.

    >>> Timings((StepTime("Exporting", 1.5, 1.25), StepTime("Writing", 0.5, 0.25))).cpu_seconds
    1.5
    """

    steps: tuple[StepTime, ...] = ()

    @property
    def wall_seconds(self) -> float:
        return sum(item.wall_seconds for item in self.steps)

    @property
    def cpu_seconds(self) -> float:
        return sum(item.cpu_seconds for item in self.steps)

    def __add__(self, other: Timings) -> Timings:
        """Return the times of both, with one entry for each name of a step."""
        spent: dict[str, tuple[float, float]] = {}
        for item in (*self.steps, *other.steps):
            wall, cpu = spent.get(item.step, (0.0, 0.0))
            spent[item.step] = wall + item.wall_seconds, cpu + item.cpu_seconds
        return _of(spent)

    def to_dict(self) -> dict[str, Any]:
        """Return the times for JSON: the total ``wall_seconds`` and ``cpu_seconds``, and in ``steps`` a list with
        ``step``, ``wall_seconds`` and ``cpu_seconds`` of each step."""
        steps = [
            {"step": item.step, "wall_seconds": item.wall_seconds, "cpu_seconds": item.cpu_seconds}
            for item in self.steps
        ]
        return {"wall_seconds": self.wall_seconds, "cpu_seconds": self.cpu_seconds, "steps": steps}


def _of(spent: Mapping[str, tuple[float, float]]) -> Timings:
    """Return the times of the steps in ``spent``. The time outside of all steps is the last entry."""
    ordered = sorted(spent.items(), key=lambda item: item[0] == OTHER)
    return Timings(tuple(StepTime(name, *seconds) for name, seconds in ordered))


@dataclass(slots=True)
class _Entry:
    """A step that has begun and has not ended, with the numbers of finished parts and of all parts that were last
    reported."""

    name: str
    done: int
    total: int


@dataclass(slots=True, eq=False)
class Clock:
    """The time that a compile has spent in each step, and the steps that are open, which may be nested.

    ``progress`` is called when a step begins, when a part of the step is finished, when a step inside it has ended, and
    when the step ends, with all parts finished. All time counts for the innermost step.
    """

    progress: Progress = silent
    spent: dict[str, tuple[float, float]] = field(default_factory=dict)
    open: list[_Entry] = field(default_factory=list)
    _since: tuple[float, float] = field(default_factory=lambda: _now())

    @property
    def timings(self) -> Timings:
        """Return the times up to the last start or end of a step, or up to the end of ``measured``."""
        return _of(self.spent)

    def report(self, entry: _Entry) -> None:
        if self.progress is not silent:
            self.progress(entry.name, entry.done, entry.total)

    def charge(self) -> None:
        """Add the time since the last call to the innermost step."""
        now = _now()
        name = self.open[-1].name if self.open else OTHER
        wall, cpu = self.spent.get(name, (0.0, 0.0))
        self.spent[name] = wall + now[0] - self._since[0], cpu + now[1] - self._since[1]
        self._since = now


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


_CLOCK: ContextVar[Clock | None] = ContextVar("openneutron_clock", default=None)
"""The clock of the running compile. It is a context variable, since ExecuTorch calls the partitioner and the backend
without a way to pass the clock."""


@contextmanager
def measured(progress: Progress = silent) -> Iterator[Clock]:
    """Measure what runs inside the block, and give the clock to the block."""
    clock = Clock(progress)
    token = _CLOCK.set(clock)
    try:
        yield clock
    finally:
        clock.charge()
        _CLOCK.reset(token)


@contextmanager
def step(name: str, total: int = 1) -> Iterator[None]:
    """Measure what runs inside the block as a step of the running compile, with ``total`` parts. Without a running
    compile nothing is measured."""
    clock = _CLOCK.get()
    if clock is None:
        yield
        return
    clock.charge()
    entry = _Entry(name, 0, total)
    clock.open.append(entry)
    clock.spent.setdefault(name, (0.0, 0.0))
    clock.report(entry)
    try:
        yield
    finally:
        clock.charge()
        clock.open.pop()
    if entry.done != entry.total:
        entry.done = entry.total
        clock.report(entry)
    if clock.open:
        clock.report(clock.open[-1])


def advance(done: int, total: int) -> None:
    """Report the number of finished parts of the innermost step of the running compile."""
    clock = _CLOCK.get()
    if clock is not None and clock.open:
        entry = clock.open[-1]
        entry.done, entry.total = done, total
        clock.report(entry)


def remark(text: str) -> None:
    """Show a remark, such as the best result so far, beside the innermost step of the running compile."""
    clock = _CLOCK.get()
    if clock is not None and clock.open:
        remark_on(clock.progress, clock.open[-1].name, text)
