# SPDX-License-Identifier: BSD-3-Clause
"""The time that each step of a compile takes."""

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
    """A progress that shows a remark beside a step, such as the best result of a search so far."""

    def remark(self, step: str, text: str) -> None: ...


def remark_on(progress: Progress, step: str, text: str) -> None:
    """Show a remark beside a step where the progress can."""
    if isinstance(progress, Remarking):
        progress.remark(step, text)


OTHER = "Other"
"""The name of the time outside of all steps."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """The seconds of a step, without those of the steps inside it.

    ``cpu_seconds`` are those of this process, all its threads together.
    """

    step: str
    wall_seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Timings:
    """The times of all steps, in the order in which the steps began. Their sum is the time of the whole.

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
        """Return the times of both, with one entry for each name."""
        spent: dict[str, tuple[float, float]] = {}
        for item in (*self.steps, *other.steps):
            wall, cpu = spent.get(item.step, (0.0, 0.0))
            spent[item.step] = wall + item.wall_seconds, cpu + item.cpu_seconds
        return _of(spent)

    def to_dict(self) -> dict[str, Any]:
        """Return the times as data: ``wall_seconds`` and ``cpu_seconds`` of the whole, and ``steps``, a list with
        ``step``, ``wall_seconds`` and ``cpu_seconds`` of each."""
        steps = [
            {"step": item.step, "wall_seconds": item.wall_seconds, "cpu_seconds": item.cpu_seconds}
            for item in self.steps
        ]
        return {"wall_seconds": self.wall_seconds, "cpu_seconds": self.cpu_seconds, "steps": steps}


def _of(spent: Mapping[str, tuple[float, float]]) -> Timings:
    """Return the times of the steps by name, those outside of all steps last."""
    ordered = sorted(spent.items(), key=lambda item: item[0] == OTHER)
    return Timings(tuple(StepTime(name, *seconds) for name, seconds in ordered))


@dataclass(slots=True)
class _Entry:
    """A step that has begun and not ended, with its parts as they were last reported."""

    name: str
    done: int
    total: int


@dataclass(slots=True, eq=False)
class Clock:
    """Measures steps, which may be inside one another, and reports them to ``progress``.

    ``progress`` is called where a step begins, with each of its parts, where a step inside it has ended, and at its end,
    when all its parts are finished. All time is charged to the innermost step.
    """

    progress: Progress = silent
    _spent: dict[str, tuple[float, float]] = field(default_factory=dict)
    _open: list[_Entry] = field(default_factory=list)
    _since: tuple[float, float] = field(default_factory=lambda: _now())

    @property
    def timings(self) -> Timings:
        """Return the times until the last step began or ended, or until ``measured`` ended."""
        return _of(self._spent)

    @contextmanager
    def step(self, name: str, total: int = 1) -> Iterator[None]:
        """Measure what runs inside, under this name."""
        self.charge()
        entry = _Entry(name, 0, total)
        self._open.append(entry)
        self._spent.setdefault(name, (0.0, 0.0))
        self.progress(name, 0, total)
        try:
            yield
        finally:
            self.charge()
            self._open.pop()
        if entry.done != entry.total:
            self.progress(name, entry.total, entry.total)
        if self._open:
            outer = self._open[-1]
            self.progress(outer.name, outer.done, outer.total)

    def advance(self, done: int, total: int) -> None:
        """Report the finished parts of the innermost step."""
        if self._open:
            entry = self._open[-1]
            entry.done, entry.total = done, total
            self.progress(entry.name, done, total)

    def remark(self, text: str) -> None:
        """Show a remark beside the innermost step."""
        if self._open:
            remark_on(self.progress, self._open[-1].name, text)

    def charge(self) -> None:
        """Count the time since the last call for the innermost step."""
        now = _now()
        name = self._open[-1].name if self._open else OTHER
        wall, cpu = self._spent.get(name, (0.0, 0.0))
        self._spent[name] = wall + now[0] - self._since[0], cpu + now[1] - self._since[1]
        self._since = now


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


_CLOCK: ContextVar[Clock | None] = ContextVar("openneutron_clock", default=None)
"""The clock of the compile that runs. ExecuTorch calls the partitioner and the backend, and passes nothing on to them."""


@contextmanager
def measured(progress: Progress = silent) -> Iterator[Clock]:
    """Measure what runs inside, with the returned clock."""
    clock = Clock(progress)
    token = _CLOCK.set(clock)
    try:
        yield clock
    finally:
        clock.charge()
        _CLOCK.reset(token)


@contextmanager
def step(name: str, total: int = 1) -> Iterator[None]:
    """Measure what runs inside as a step of the compile that runs; outside of a compile, only run it."""
    clock = _CLOCK.get()
    if clock is None:
        yield
        return
    with clock.step(name, total):
        yield


def advance(done: int, total: int) -> None:
    """Report the finished parts of the innermost step of the compile that runs."""
    clock = _CLOCK.get()
    if clock is not None:
        clock.advance(done, total)


def remark(text: str) -> None:
    """Show a remark, such as the best result so far, beside the innermost step of the compile that runs."""
    clock = _CLOCK.get()
    if clock is not None:
        clock.remark(text)
