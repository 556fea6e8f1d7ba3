# SPDX-License-Identifier: BSD-3-Clause
"""Represent a schedule, the order of a program's steps, and model its cycles.

A step is a whole call, a stripe, a loop of stripes, a copy of constants (``place/prefetch.py``) or a wait. Convolutions can be cut
into groups of output channels, so that their constants can be copied to SRAM piece by piece.

One copy engine makes all copies, one after the other, while kernels compute. Tiles of tensors (calls of transfers) have priority over
constants, which is assumed. The copy of a tile starts when its call is reached and the previous tiles are copied. Constants are copied
in the order of their FETCH while no tile is copied. Example: a step of 10 cycles runs in parallel to the copies of a tile (4 cycles)
and a constant (8 cycles). At the end of the step 6 of the constant's 8 cycles have passed, and a WAIT for the constant takes the other 2.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from openneutron.compiler.cost.cycles import call_cost, fetch_cycles
from openneutron.compiler.select.calls import KernelCall, Storages
from openneutron.compiler.select.needs import some_channels, takes_channels
from openneutron.isa import aligned
from openneutron.isa.rows import LANES
from openneutron.targets import Target


@dataclass(frozen=True, slots=True)
class Whole:
    """A step in which call number ``call`` computes its whole output."""

    call: int

    def __str__(self) -> str:
        return f"call {self.call} whole"


@dataclass(frozen=True, slots=True)
class Rows:
    """A step in which call number ``call`` computes rows [row0 + i * step, row1 + i * step) of its output, clipped to
    the output.

    i is the iteration of the loop around the step, from 0; outside a loop it is 0.
    """

    call: int
    row0: int
    row1: int
    step: int = 0

    def __str__(self) -> str:
        return f"call {self.call} rows {self.row0}:{self.row1}" + (f", {self.step:+} each time" if self.step else "")


@dataclass(frozen=True, slots=True)
class Wait:
    """A step that waits until all copies on a channel of the copy engine have ended."""

    channel: int = 0

    def __str__(self) -> str:
        return f"wait for channel {self.channel}"


@dataclass(frozen=True, slots=True)
class Loop:
    """A step that runs the steps of ``body`` in order, ``count`` times."""

    count: int
    body: tuple[Rows | Wait, ...]

    def __str__(self) -> str:
        return "\n".join((f"{self.count} times", *(f"  {part}" for part in self.body)))


@dataclass(frozen=True, slots=True)
class Fetch:
    """A step that starts the copy of a call's constants to the byte address ``destination``, which counts from the
    start of the arena.

    An address past the end of the arena is in the prefetch buffer. In a tiled schedule all addresses are in the
    prefetch buffer.
    """

    call: int
    destination: int
    channel: int = 0

    def __str__(self) -> str:
        return f"fetch the constants of call {self.call} to 0x{self.destination:x}, channel {self.channel}"


Step = Whole | Rows | Loop | Fetch | Wait


@dataclass(frozen=True, slots=True)
class Schedule:
    """The kernel calls of a program, the steps that run them, and rules for the memory of their storages.

    * ``rings``: the rows of each rolling buffer, by the name of its storage. Other storages hold all rows.
    * ``prefetch_bytes``: the size of the prefetch buffer if the schedule is not tiled.
    * ``overlaps``: pairs of storages (written, read) that may overlap though both are live, since the writes only reach
      bytes that are not read any more. The value is the largest allowed distance in bytes from the start of the read
      storage to the start of the written one; it is negative if the written one must start first.
    * ``allocations``: storages that share an allocation. The key is the storage's name, the value is the name of the
      allocation and the storage's offset in it, in bytes. The storages of an allocation are used one after the other,
      although all of them are live throughout a loop.
    * ``is_tiled``: kernels access only the memory of the NPU, which is the prefetch buffer. The scratch buffer is in external memory,
      and transfers copy between the two.
    """

    calls: tuple[KernelCall, ...]
    steps: tuple[Step, ...]
    rings: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    prefetch_bytes: int = 0
    overlaps: Mapping[tuple[str, str], int] = field(default_factory=lambda: MappingProxyType({}))
    allocations: Mapping[str, tuple[str, int]] = field(default_factory=lambda: MappingProxyType({}))
    is_tiled: bool = False

    def calls_of(self, step: Step) -> Iterator[KernelCall]:
        """Return the kernel calls that a step runs, in order."""
        return (self.calls[call] for call in calls_in(step))

    def overlaps_of(self, names: Iterable[str]) -> dict[tuple[str, str], int]:
        """Return the pairs of ``overlaps`` whose storages are both among ``names``."""
        placed = set(names)
        return {pair: furthest for pair, furthest in self.overlaps.items() if placed.issuperset(pair)}

    def __str__(self) -> str:
        """Return the calls and the steps, each with its number; then rolling buffers, overlaps and shared allocations."""
        lines = ["calls", *(f"  {number}: {call}" for number, call in enumerate(self.calls)), "steps"]
        lines += [f"  {number}: {step}".replace("\n", "\n    ") for number, step in enumerate(self.steps)]
        notes = [f"  %{name}: a rolling buffer of {rows} rows" for name, rows in self.rings.items()]
        notes += [
            f"  %{made} may start at most {furthest} B behind the start of %{dying}"
            for (made, dying), furthest in self.overlaps.items()
        ]
        notes += [
            f"  %{name}: {offset} B behind the start of {allocation}"
            for name, (allocation, offset) in self.allocations.items()
        ]
        return "\n".join([*lines, *(["memory", *notes] if notes else [])])

    def verify(self) -> None:
        """Assert that a step runs each call, and that each call is valid (``KernelCall.verify``)."""
        run = {id(call) for step in self.steps for call in self.calls_of(step)}
        assert all(id(call) in run for call in self.calls), "a call is never run"
        for call in self.calls:
            call.verify()


def calls_in(step: Step) -> tuple[int, ...]:
    """Return the numbers of the calls that a step runs."""
    if isinstance(step, Loop):
        return tuple(part.call for part in step.body if isinstance(part, Rows))
    return (step.call,) if isinstance(step, Whole | Rows) else ()


def whole_schedule(calls: Sequence[KernelCall]) -> Schedule:
    """Return the schedule that runs each call once, on its whole output, in the given order."""
    return Schedule(tuple(calls), tuple(Whole(index) for index in range(len(calls))))


def constant_operands(call: KernelCall, storages: Storages, kept: bool = False) -> dict[str, bytes]:
    """Return the bytes of those operands of a call that are constants, by the names of their storages. An operand is
    returned whole, even if the call's view covers only a part of it.

    The kernel itself copies some constant operands, part by part as it reads them. With ``kept``, return these;
    otherwise return the others.
    """
    names = (name for name in call.views if (name in call.traits.copied_by_kernel) == kept)
    operands = (storages[call.views[name].tensor] for name in names)
    return {storage.name: storage.constant for storage in operands if storage.constant is not None}


def fetched_sizes(schedule: Schedule, storages: Storages) -> dict[int, int]:
    """Return the bytes of SRAM that the constants of each call take, by the call's index. Calls without constants have
    no entry."""
    sizes = {index: fetched_bytes(call, storages) for index, call in enumerate(schedule.calls)}
    return {index: size for index, size in sizes.items() if size}


def fetched_bytes(call: KernelCall, storages: Storages) -> int:
    """Return the bytes that a call's constants take in the prefetch buffer: packed constants and constant operands, each aligned."""
    operands = map(len, constant_operands(call, storages).values())
    return sum(map(aligned, (*call.packed_bytes().values(), *operands)))


def kept_bytes(schedule: Schedule, storages: Storages) -> int:
    """Return the total aligned size in bytes of the constants that are never copied as a whole before a run, because
    kernels copy only the parts that they read (``Operand.copied_by_kernel``). Constants with equal bytes count once."""
    kept = (constant_operands(call, storages, kept=True).values() for call in schedule.calls)
    return sum(aligned(len(constant)) for constant in dict.fromkeys(itertools.chain(*kept)))


def part_rows(step: Whole | Rows, call: KernelCall) -> int:
    """Return the number of rows of its output that ``call`` computes in a step."""
    rows = call.views["output"].extents[1]
    return rows if isinstance(step, Whole) else min(step.row1 - step.row0, rows)


def part_cycles(step: Whole | Rows, call: KernelCall, target: Target) -> int:
    """Return the cycles of a step in which ``call`` computes its whole output or some rows, the dispatch included."""
    return call_cost(call, target, part_rows(step, call)).cycles


def compute_cycles(step: Step, schedule: Schedule, target: Target) -> int:
    """Return the cycles of the kernel calls that a step runs, those of all iterations of a loop; 0 for copies and waits."""
    if isinstance(step, Loop):
        parts = (part for part in step.body if isinstance(part, Rows))
        return step.count * sum(part_cycles(part, schedule.calls[part.call], target) for part in parts)
    if isinstance(step, Whole | Rows):
        return part_cycles(step, schedule.calls[step.call], target)
    return 0


def durations(schedule: Schedule, target: Target) -> dict[Step, int]:
    """Return the cycles of each step that runs kernel calls, by the step."""
    return {step: compute_cycles(step, schedule, target) for step in schedule.steps if calls_in(step)}


def _runs(schedule: Schedule) -> Iterator[tuple[Whole | Rows, int]]:
    """Yield each part of the schedule that runs a kernel call, with the number of times that it runs."""
    for step in schedule.steps:
        count, parts = (step.count, step.body) if isinstance(step, Loop) else (1, (step,))
        yield from ((part, count) for part in parts if isinstance(part, Whole | Rows))


def spent_on_calls(schedule: Schedule, target: Target) -> list[tuple[int, int]]:
    """Return for each call of the schedule how often it runs, and the sum of the cycles of these runs."""
    runs, cycles = [0] * len(schedule.calls), [0] * len(schedule.calls)
    for part, count in _runs(schedule):
        runs[part.call] += count
        cycles[part.call] += count * part_cycles(part, schedule.calls[part.call], target)
    return list(zip(runs, cycles, strict=True))


def runs_of_calls(schedule: Schedule) -> list[tuple[int, int]]:
    """Return for each call of the schedule how often it runs, and the sum of the output rows of these runs."""
    runs, computed = [0] * len(schedule.calls), [0] * len(schedule.calls)
    for part, count in _runs(schedule):
        runs[part.call] += count
        computed[part.call] += count * part_rows(part, schedule.calls[part.call])
    return list(zip(runs, computed, strict=True))


def copy_cycles(schedule: Schedule, sizes: Mapping[int, int], target: Target) -> int:
    """Return the sum of the cycles of all copies in a run: copies of constants, and transfers of tensors in a tiled schedule.

    ``sizes`` are the bytes of each call's constants, by the call's index.
    """
    fetched = sum(fetch_cycles(sizes[step.call], target) for step in schedule.steps if isinstance(step, Fetch))
    spent = zip(schedule.calls, spent_on_calls(schedule, target), strict=True) if schedule.is_tiled else ()
    return fetched + sum(cycles for call, (_, cycles) in spent if call.is_transfer)


@dataclasses.dataclass(frozen=True, slots=True)
class Cuttable:
    """A call, and its division into pieces by output channels. A piece has whole blocks of 8 channels.

    A call has only one piece if its kernel does not allow a division, if it computes channel by channel or in several
    groups, or if it reads a constant operand.
    """

    call: KernelCall
    storages: Storages

    @property
    def blocks(self) -> int:
        """Return the number of blocks of output channels; 1 if the call can't be divided."""
        call, channels = self.call, self.call.traits.channels
        if channels is None or channels.same or not takes_channels(call):
            return 1
        if any(self.storages[view.tensor].constant is not None for view in call.views.values()):
            return 1
        return -(-call.views["output"].extents[3] // LANES)

    def piece_bytes(self, blocks: int) -> int:
        """Return the bytes of SRAM for the constants of a piece of ``blocks`` blocks."""
        whole = blocks >= self.blocks
        return fetched_bytes(self.call if whole else self.piece(0, blocks, ""), self.storages)

    def piece(self, first: int, last: int, name: str) -> KernelCall:
        """Return the call named ``name`` that computes only the channels of blocks [first, last)."""
        channels = self.call.views["output"].extents[3]
        part = some_channels(self.call, (first * LANES, min(last * LANES, channels)))
        return dataclasses.replace(part, name=name)


def edges(blocks: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield ``count`` consecutive ranges (first, end) that together cover ``blocks`` blocks. Their sizes differ by at most 1."""
    return itertools.pairwise(blocks * part // count for part in range(count + 1))


def split_calls(schedule: Schedule, storages: Storages, counts: Mapping[int, int]) -> Schedule:
    """Return the schedule with calls divided into pieces by output channels. ``counts`` has the number of pieces for
    the index of each call that is divided.

    Each piece reads the whole input and writes its own channels of the output. A call that the schedule runs in
    stripes can't be divided.
    """
    calls: list[KernelCall] = []
    places: dict[int, range] = {}
    for index, call in enumerate(schedule.calls):
        start, count = len(calls), counts.get(index, 1)
        if count > 1:
            cuttable = Cuttable(call, storages)
            for part, (first, last) in enumerate(edges(cuttable.blocks, count)):
                calls.append(cuttable.piece(first, last, f"{call.name}/{part}"))
        else:
            calls.append(call)
        places[index] = range(start, len(calls))
    steps: list[Step] = []
    for step in schedule.steps:
        steps += _moved(step, places)
    return dataclasses.replace(schedule, calls=tuple(calls), steps=tuple(steps))


def _moved(step: Step, places: dict[int, range]) -> Iterator[Step]:
    if isinstance(step, Loop):
        body = (
            dataclasses.replace(part, call=places[part.call][0]) if isinstance(part, Rows) else part
            for part in step.body
        )
        yield Loop(step.count, tuple(body))
    elif isinstance(step, Whole | Rows):
        assert isinstance(step, Whole) or len(places[step.call]) == 1, "a call in stripes is not cut"
        for place in places[step.call]:
            yield dataclasses.replace(step, call=place)
    else:
        yield step


@dataclass(slots=True)
class CopyEngine:
    """The state of the copy engine at the time ``now``, in cycles from the start of the run.

    ``moved`` is the time at which all copies of tiles that were started have ended. ``asked`` is the sum of the cycles
    of all copies of constants that were started, and ``fetched`` the part of this sum that has passed.
    """

    now: int = 0
    moved: int = 0
    asked: int = 0
    fetched: int = 0

    def advance(self, now: int) -> None:
        """Advance the time to ``now``. Copies of constants progress in the cycles in which no tile is copied."""
        free = now - max(self.now, self.moved)
        if free > 0:
            self.fetched = min(self.asked, self.fetched + free)
        self.now = now

    def move(self, cycles: int) -> int:
        """Start the copy of a tile that takes ``cycles``, and return the time at which it ends."""
        self.moved = max(self.now, self.moved) + cycles
        return self.moved

    def fetch(self, cycles: int) -> int:
        """Start the copy of a constant that takes ``cycles``. Return the number to pass to ``arrival`` for the time
        at which the copy ends."""
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
    """The time of one step. ``spent`` are the cycles from the end of the previous step to the end of this one, and
    ``moving`` those of them in which tiles are copied."""

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
        """Return the number of cycles from the time ``before`` until now in which tiles were copied. ``moved`` is the
        time at which the copies started before ``before`` were to end.

        Also reset the sum of the cycles of the copies that were started since then.
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
    """Return the cycles of a run in which copies run in parallel to kernels. ``sizes`` are the bytes of each call's
    constants, by the call's index."""
    line = Timeline(schedule, sizes, target)
    line.run()
    return line.engine.now
