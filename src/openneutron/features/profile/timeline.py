# SPDX-License-Identifier: BSD-3-Clause
"""The modelled schedule of a program: the work of the NPU, the copy engine and the host core in each cycle of a run."""

from __future__ import annotations

import bisect
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from openneutron.compiler.cost.cycles import fetch_cycles, host_of, issue_cycles
from openneutron.compiler.schedule.schedule import CopyEngine
from openneutron.isa import Microcode, Record
from openneutron.isa.microcode import CallStep, CopyStep, steps
from openneutron.targets import Target


class Track(Enum):
    """A part of the chip that does one thing at a time."""

    NPU = "NPU"
    COPY_ENGINE = "Copy engine"
    HOST = "Host core"
    DATA_MOVER = "Data mover"


class Kind(Enum):
    """The kind of work of a slice."""

    KERNEL = "kernel"
    COPY = "copy"
    DISPATCH = "dispatch"
    WAIT = "wait"


COMPUTE = (Kind.KERNEL, Kind.DISPATCH)
"""The kinds of work that can hide a copy. A kernel call consists of its dispatch by the host and of its kernel."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A piece of work of one track, from cycle ``start`` to before cycle ``end`` of a run."""

    track: Track
    kind: Kind
    name: str
    start: int
    end: int
    details: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def cycles(self) -> int:
        return self.end - self.start


def timeline(microcode: Microcode, layers: Sequence[str], target: Target, start: int = 0) -> list[Slice]:
    """Return the schedule of a run that begins in cycle ``start``, if constants are copied in the background. A slice
    is the work of a part of the chip from one cycle to another.

    ``layers`` are the names of the operators. Transfers are sequential: the copy of a constant begins after its FETCH
    is reached and the copies before it have ended. Tiles of tensors have priority over constants, so that a copy of
    constants may have several slices (compiler/schedule/schedule.py). If ``start`` is 0, the last slice of the host,
    the NPU or the data mover ends at the cycle that a summary calls ``overlapped_cycles``.
    """
    made: list[Slice] = []
    copies: list[Slice] = []
    engine = CopyEngine(start, start)
    tiles: dict[int, int] = {}
    constants: dict[int, int] = {}
    for step in steps(microcode):
        if isinstance(step, CallStep):
            layer, operator, now = layers[step.operator], microcode.operators[step.operator], engine.now
            details = {"operator": step.operator, "kernel": operator.row.name, "rows": f"{step.rows[0]}:{step.rows[1]}"}
            if operator.row.is_transfer:
                end = tiles[operator["channel"]] = engine.move(step.cycles)
                made.append(Slice(Track.DATA_MOVER, Kind.COPY, layer, end - step.cycles, end, details))
                continue
            if host_of(operator.row, target) is not None:
                made.append(Slice(Track.HOST, Kind.KERNEL, layer, now, now + step.cycles, details))
                engine.advance(now + step.cycles)
                continue
            issued = now + min(issue_cycles(operator.row, target), step.cycles)
            made.append(Slice(Track.HOST, Kind.DISPATCH, layer, now, issued, details))
            made.append(Slice(Track.NPU, Kind.KERNEL, layer, issued, now + step.cycles, details))
            engine.advance(now + step.cycles)
        elif isinstance(step, CopyStep):
            cycles = fetch_cycles(step.size_bytes, target)
            constants[step.channel] = engine.fetch(cycles)
            name = f"constants of {layers[index]}" if (index := _reader(microcode, step)) is not None else "constants"
            details = {"bytes": step.size_bytes, "channel": step.channel}
            copies.append(Slice(Track.COPY_ENGINE, Kind.COPY, name, engine.now, engine.now + cycles, details))
        else:
            done = max(tiles.pop(step.channel, 0), engine.arrival(constants.get(step.channel, 0)))
            if done > engine.now:
                made.append(Slice(Track.HOST, Kind.WAIT, f"wait for channel {step.channel}", engine.now, done))
                engine.advance(done)
    return [*made, *_between_tiles(copies, [each for each in made if each.track is Track.DATA_MOVER])]


def run_cycles(microcode: Microcode, target: Target) -> int:
    """Return the cycles of a run with a port that copies in the background, which a summary calls
    ``overlapped_cycles``."""
    slices = timeline(microcode, [""] * len(microcode.operators), target)
    return max((item.end for item in slices), default=0)


def _between_tiles(copies: Iterable[Slice], tiles: Sequence[Slice]) -> Iterator[Slice]:
    """Yield slices of the copies of constants, one copy after the other, in the cycles in which no tile is copied. A
    tile divides a copy into two slices.

    ``copies`` has one slice for each copy. It starts where the FETCH of the copy is reached, and lasts as long as the
    copy would take alone.
    """
    now = place = 0
    for copy in copies:
        now, left = max(now, copy.start), copy.cycles
        while left:
            while place < len(tiles) and tiles[place].end <= now:
                place += 1
            if place < len(tiles) and tiles[place].start <= now:
                now = tiles[place].end
                continue
            until = min(now + left, tiles[place].start if place < len(tiles) else now + left)
            yield replace(copy, start=now, end=until)
            left, now = left - (until - now), until


def _reader(microcode: Microcode, copy: CopyStep) -> int | None:
    """Return the index of the first operator that reads constants at the destination of the copy; None if there is
    none."""
    for index, operator in enumerate(microcode.operators):
        for base, offset in _constants(microcode, operator):
            if base == copy.base and copy.destination <= offset < copy.destination + copy.size_bytes:
                return index
    return None


def _constants(microcode: Microcode, operator: Record) -> Iterator[tuple[int, int]]:
    """Yield the base and the offset of each constant that an operator's fields address. Operands that are buffers are
    not among them."""
    for column in operator.row.fields:
        if column.name.endswith("_base"):
            yield operator[column.name], operator[f"{column.name.removesuffix('_base')}_offset"]


def overlap_cycles(slices: Iterable[Slice]) -> int:
    """Return the cycles of copies during which a kernel call runs."""
    slices = list(slices)
    computing = [item for item in slices if item.kind in COMPUTE]
    started, ended = _summed(item.start for item in computing), _summed(item.end for item in computing)

    def computed(until: int) -> int:
        return _since(started, until) - _since(ended, until)

    return sum(computed(item.end) - computed(item.start) for item in slices if item.kind is Kind.COPY)


def _summed(times: Iterable[int]) -> tuple[list[int], list[int]]:
    """Return times in order, and the sums of the first 0, 1, 2, ... of them."""
    ordered = sorted(times)
    return ordered, [0, *itertools.accumulate(ordered)]


def _since(times: tuple[list[int], list[int]], now: int) -> int:
    """Return the sum of the cycles from each of the times before ``now`` until ``now``."""
    ordered, sums = times
    count = bisect.bisect_left(ordered, now)
    return count * now - sums[count]


PROCESS = 1
THREADS = {track: number for number, track in enumerate(Track, 1)}


def chrome_trace(title: str, slices: Sequence[Slice], target: Target) -> bytes:
    """Return the trace of a run in Chrome's trace event format. Times are rounded to nanoseconds; the arguments of an
    event have its exact cycles."""
    events = [
        *_names(f"{title}, modelled on {target.title}", target),
        *(_event(item, target) for item in slices if item.cycles),
    ]
    facts = {"target": target.name, "clock_mhz": target.clock.value}
    data = {"displayTimeUnit": "ns", "otherData": facts, "traceEvents": events}
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def _names(title: str, target: Target) -> Iterable[dict[str, Any]]:
    yield {"ph": "M", "pid": PROCESS, "name": "process_name", "args": {"name": title}}
    for track, thread in THREADS.items():
        if track is Track.DATA_MOVER and not target.moves_tiles:
            continue
        place = {"ph": "M", "pid": PROCESS, "tid": thread}
        yield {**place, "name": "thread_name", "args": {"name": track.value}}
        yield {**place, "name": "thread_sort_index", "args": {"sort_index": thread}}


def _event(item: Slice, target: Target) -> dict[str, Any]:
    start, end = (round(cycle * 1e3 / target.clock.value) for cycle in (item.start, item.end))
    return {
        "ph": "X",
        "pid": PROCESS,
        "tid": THREADS[item.track],
        "name": item.name,
        "cat": item.kind.value,
        "ts": start / 1e3,
        "dur": (end - start) / 1e3,
        "args": {"start_cycle": item.start, "cycles": item.cycles, **item.details},
    }
