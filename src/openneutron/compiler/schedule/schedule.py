# SPDX-License-Identifier: BSD-3-Clause
"""The order of steps and its modelled cycles: whole calls, stripes, loops of stripes, copies of constants (memory/prefetch.py).

Convolutions can be cut into groups of output channels, so that their constants can come to SRAM piece by piece.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
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
    """Call ``call`` computes its whole output."""

    call: int

    def __str__(self) -> str:
        return f"call {self.call} whole"


@dataclass(frozen=True, slots=True)
class Rows:
    """Call ``call`` computes rows [row0 + i*step, row1 + i*step) of its output, clipped; i counts the loop around it."""

    call: int
    row0: int
    row1: int
    step: int = 0

    def __str__(self) -> str:
        return f"call {self.call} rows {self.row0}:{self.row1}" + (f", {self.step:+} each time" if self.step else "")


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for a channel's copies."""

    channel: int = 0

    def __str__(self) -> str:
        return f"wait for channel {self.channel}"


@dataclass(frozen=True, slots=True)
class Loop:
    """The body, ``count`` times."""

    count: int
    body: tuple[Rows | Wait, ...]

    def __str__(self) -> str:
        return "\n".join((f"{self.count} times", *(f"  {part}" for part in self.body)))


@dataclass(frozen=True, slots=True)
class Fetch:
    """A copy of the call's constants to address ``destination`` of the arena, or as far behind its end in the prefetch buffer."""

    call: int
    destination: int
    channel: int = 0

    def __str__(self) -> str:
        return f"fetch the constants of call {self.call} to 0x{self.destination:x}, channel {self.channel}"


Step = Whole | Rows | Loop | Fetch | Wait


@dataclass(frozen=True, slots=True)
class Schedule:
    """Calls, the steps that run them, and how many rows are held of the tensors that are not held whole.

    ``overlaps``: a pair of storages (defined, last used) may overlap though both are live, because the first is written over bytes that
    are not needed any more: it may start at most so many bytes behind the second's start (below 0: before it).
    ``allocations``: storages that share an allocation, by name, each so many bytes behind its start. They are used one after the
    other, though a loop keeps all of them live. ``is_tiled``: kernels access only the memory of the NPU, which is the prefetch
    buffer; the scratch buffer is in external memory, and transfers copy between the two.
    """

    calls: tuple[KernelCall, ...]
    steps: tuple[Step, ...]
    rings: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    prefetch_bytes: int = 0
    overlaps: Mapping[tuple[str, str], int] = field(default_factory=lambda: MappingProxyType({}))
    allocations: Mapping[str, tuple[str, int]] = field(default_factory=lambda: MappingProxyType({}))
    is_tiled: bool = False

    def calls_of(self, step: Step) -> Iterator[KernelCall]:
        """Return the calls a step runs."""
        return (self.calls[call] for call in calls_in(step))

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
        """Assert that every call is run by a step and every fetched constant has its place."""
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
    """Return every call once, whole, in the order given."""
    return Schedule(tuple(calls), tuple(Whole(index) for index in range(len(calls))))


def constant_operands(call: KernelCall, storages: Storages, kept: bool = False) -> dict[str, bytes]:
    """Return the constant operands that a call reads of the weights, by their storages' names.

    An operand is there whole, though a view may leave out some of it. ``kept``: the operands that stay where the constants are between runs,
    since the kernel itself copies what it reads; otherwise the others.
    """
    names = (name for name in call.views if (name in call.traits.copied_by_kernel) == kept)
    operands = (storages[call.views[name].tensor] for name in names)
    return {storage.name: storage.constant for storage in operands if storage.constant is not None}


def fetched_sizes(schedule: Schedule, storages: Storages) -> dict[int, int]:
    """Return the SRAM of each call's constants in bytes, by the call's index, for the calls that have constants."""
    sizes = {index: fetched_bytes(call, storages) for index, call in enumerate(schedule.calls)}
    return {index: size for index, size in sizes.items() if size}


def fetched_bytes(call: KernelCall, storages: Storages) -> int:
    """Return the bytes of a call's constants in the prefetch buffer."""
    operands = map(len, constant_operands(call, storages).values())
    return sum(map(aligned, (*call.packed_bytes().values(), *operands)))


def kept_bytes(schedule: Schedule, storages: Storages) -> int:
    """Return the bytes of all constants that are never copied whole, equal ones once."""
    kept = (constant_operands(call, storages, kept=True).values() for call in schedule.calls)
    return sum(aligned(len(constant)) for constant in dict.fromkeys(itertools.chain(*kept)))


def part_cycles(step: Whole | Rows, call: KernelCall, target: Target) -> int:
    """Return the cycles of a call that computes all of its output, or some rows."""
    rows = call.views["output"].extents[1]
    return call_cost(call, target, rows if isinstance(step, Whole) else min(step.row1 - step.row0, rows)).cycles


def compute_cycles(step: Step, schedule: Schedule, target: Target) -> int:
    """Return the cycles of the kernel calls that a step runs."""
    if isinstance(step, Loop):
        parts = (part for part in step.body if isinstance(part, Rows))
        return step.count * sum(part_cycles(part, schedule.calls[part.call], target) for part in parts)
    if isinstance(step, Whole | Rows):
        return part_cycles(step, schedule.calls[step.call], target)
    return 0


def durations(schedule: Schedule, target: Target) -> dict[Step, int]:
    """Return the cycles of each step that runs kernel calls."""
    return {step: compute_cycles(step, schedule, target) for step in schedule.steps if calls_in(step)}


def spent_on_calls(schedule: Schedule, target: Target) -> list[tuple[int, int]]:
    """Return for each call of the schedule how often it runs, and its cycles in all."""
    runs, cycles = [0] * len(schedule.calls), [0] * len(schedule.calls)
    for step in schedule.steps:
        count, parts = (step.count, step.body) if isinstance(step, Loop) else (1, (step,))
        for part in parts:
            if isinstance(part, Whole | Rows):
                runs[part.call] += count
                cycles[part.call] += count * part_cycles(part, schedule.calls[part.call], target)
    return list(zip(runs, cycles, strict=True))


def copy_cycles(schedule: Schedule, sizes: Mapping[int, int], target: Target) -> int:
    """Return the cycles that all copies of a run take together, of constants and of tensors."""
    fetched = sum(fetch_cycles(sizes[step.call], target) for step in schedule.steps if isinstance(step, Fetch))
    spent = zip(schedule.calls, spent_on_calls(schedule, target), strict=True) if schedule.is_tiled else ()
    return fetched + sum(cycles for call, (_, cycles) in spent if call.is_transfer)


@dataclasses.dataclass(frozen=True, slots=True)
class Cuttable:
    """A call that may be cut into pieces of whole ``blocks`` of 8 output channels; 1 where it can't be.

    A convolution of several groups stays as it is, and one that reads a constant operand.
    """

    call: KernelCall
    storages: Storages

    @property
    def blocks(self) -> int:
        """Return the blocks of output channels that can be cut apart; 1 where the call stays whole."""
        call, channels = self.call, self.call.traits.channels
        if channels is None or channels.same or not takes_channels(call):
            return 1
        if any(self.storages[view.tensor].constant is not None for view in call.views.values()):
            return 1
        return -(-call.views["output"].extents[3] // LANES)

    def piece_bytes(self, blocks: int) -> int:
        """Return the bytes of SRAM of the constants of so many blocks."""
        whole = blocks >= self.blocks
        return fetched_bytes(self.call if whole else self.piece(0, blocks, ""), self.storages)

    def piece(self, first: int, last: int, name: str) -> KernelCall:
        """Return the call that computes the channels of blocks [first, last)."""
        channels = self.call.views["output"].extents[3]
        part = some_channels(self.call, (first * LANES, min(last * LANES, channels)))
        return dataclasses.replace(part, name=name)


def edges(blocks: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield ``count`` ranges of nearly one size that cover the blocks."""
    return itertools.pairwise(blocks * part // count for part in range(count + 1))


def split_calls(schedule: Schedule, storages: Storages, counts: Mapping[int, int]) -> Schedule:
    """Return the schedule with call ``index`` in ``counts[index]`` pieces of fewer output channels.

    Each piece reads the whole input and writes its channels of the output. Only calls that are computed whole can be cut.
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
