# SPDX-License-Identifier: BSD-3-Clause
"""Schedules and layouts to programs, and the result of a compile with its facts: cycles by operator, buffers and sizes."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from openneutron.compiler.cost.cycles import bottleneck, call_cost, fetch_cycles, idle_reason
from openneutron.compiler.emit.course import StepReport, rows_held, steps_of, traffic
from openneutron.compiler.emit.packing import packed
from openneutron.compiler.emit.weights import Weights, state_record
from openneutron.compiler.memory.layout import Layout, bytes_outside, lay_out
from openneutron.compiler.schedule.schedule import (
    Fetch,
    Loop,
    Rows,
    Schedule,
    Step,
    Wait,
    Whole,
    constant_operands,
    copy_cycles,
    durations,
    fetched_sizes,
    overlapped_cycles,
    part_cycles,
    spent_on_calls,
)
from openneutron.compiler.search.effort import DEFAULT
from openneutron.compiler.select.calls import KernelCall, Storages, View
from openneutron.compiler.select.states import state_bytes
from openneutron.ir import Graph
from openneutron.isa import Microcode, Program, Record, aligned, base, encode, record
from openneutron.isa.facts import OperatorFacts, with_facts
from openneutron.isa.kernels.row import Packing
from openneutron.isa.rows import BINDING, BUFFER, INSTRUCTION_BY_NAME, KERNEL_BY_NAME
from openneutron.options import ARENA, CALLER, CompileOptions
from openneutron.targets import Target

NAME_LENGTH = 40
"""Operator names are cut to so many characters in a program: they are for listings and profiles only."""


def short_name(name: str) -> str:
    """Return a node's name for listings: the last part of a fused name, cut from the front."""
    return _last_name(name)[-NAME_LENGTH:]


def _last_name(name: str) -> str:
    return name.rsplit(";", 1)[-1]


PROFILE_EVENT_BYTES = 16
"""NeutronEvent of NeutronDriver.h: what the driver writes to the profile buffer for a kernel call."""


def emit(
    graph: Graph,
    schedule: Schedule,
    storages: Storages,
    layout: Layout,
    target: Target,
    profile: bool = False,
) -> Program:
    """Return the program that runs the schedule, with a profile buffer and the operators' facts on demand. The same
    arguments give the same bytes."""
    weights = Weights()
    buffers: dict[Record, int] = {}
    operators = []
    known: dict[tuple[int, Packing], bytes] = {}
    fetched = {}
    for step in schedule.steps:
        if isinstance(step, Fetch):
            behind = step.destination - layout.scratch_bytes
            fetched[step.call] = (base("SCRATCH"), step.destination) if behind < 0 else (base("PREFETCH"), behind)
    sources: dict[int, tuple[int, int, int, int]] = {}
    for index, call in enumerate(schedule.calls):
        values = dict(call.params)
        operands = {f"%{name}": content for name, content in constant_operands(call, storages).items()}
        constants = {**packed(call, known), **operands}
        if index in fetched:
            # One FETCH brings them all: they must be one piece.
            joined = b"".join(blob + bytes(aligned(len(blob)) - len(blob)) for blob in constants.values())
            sources[index] = (weights.add(joined), len(joined), *fetched[index])
        homes: dict[str, tuple[int, int]] = {}
        word, inside = fetched.get(index, (base("WEIGHTS"), 0))
        for key, blob in constants.items():
            homes[key] = (word, inside) if index in fetched else (word, weights.add(blob))
            inside += aligned(len(blob))
        for stem in call.constants:
            values[f"{stem}_base"], values[f"{stem}_offset"] = homes[stem]
        for name, view in call.views.items():
            buffer = _buffer(view, schedule, storages, homes, layout.homes)
            values[name] = buffers.setdefault(buffer, len(buffers))
        operators.append(record(KERNEL_BY_NAME[call.kernel], **values))
    code: list[Record] = []
    cycles = 0
    for step in schedule.steps:
        records, spent = _instructions(step, schedule, sources, target)
        code += records
        cycles += spent
    code.append(_instruction("END"))
    microcode = Microcode(
        inputs=tuple(_binding(graph, storages, layout, name, i, "input") for i, name in enumerate(graph.inputs)),
        outputs=tuple(_binding(graph, storages, layout, name, i, "output") for i, name in enumerate(graph.outputs)),
        buffers=tuple(buffers),
        operators=tuple(operators),
        code=tuple(code),
        scratch_size=layout.scratch_bytes,
        prefetch_size=schedule.prefetch_bytes,
        profile_size=sum(runs for runs, _ in spent_on_calls(schedule, target)) * PROFILE_EVENT_BYTES if profile else 0,
        target=zlib.crc32(target.name.encode()),
        cycles=cycles,
        names=tuple(short_name(call.name) for call in schedule.calls),
        states=tuple(state_record(state, storages, weights) for state in graph.states),
        state_size=state_bytes(graph),
    )
    program = encode(microcode, bytes(weights.blob))
    return with_facts(program, [_facts(call) for call in schedule.calls]) if profile else program


def _facts(call: KernelCall) -> OperatorFacts:
    """Return the name of a call and the bytes that it reads and writes, each byte once."""
    read = sum(
        math.prod(extent for extent, pitch in zip(view.extents, view.pitches, strict=True) if pitch or extent == 1)
        for view in call.views.values()
    )
    return OperatorFacts(_last_name(call.name), read + sum(call.packed_bytes().values()))


def _buffer(
    view: View,
    schedule: Schedule,
    storages: Storages,
    constants: Mapping[str, tuple[int, int]],
    homes: Mapping[str, tuple[int, int]],
) -> Record:
    storage = storages[view.tensor]
    home, offset = homes[storage.name] if storage.constant is None else constants[f"%{storage.name}"]
    batches, rows, cols, channels = view.extents
    ring = schedule.rings.get(storage.name, rows)
    return record(
        BUFFER,
        base=home,
        offset=offset + view.offset,
        **dict(zip(("batches", "rows", "cols", "channels"), view.extents, strict=True)),
        batch_pitch=view.pitches[0] if batches > 1 else 0,
        row_pitch=view.pitches[1] if rows > 1 else 0,
        col_pitch=view.pitches[2],
        channel_pitch=view.pitches[3],
        ring=min(ring, rows),
        col0=0,
        cols_held=cols,
        channel0=0,
        channels_held=channels,
    )


def _binding(graph: Graph, storages: Storages, layout: Layout, name: str, position: int, side: str) -> Record:
    home, offset = layout.homes[_border(storages, position, side)]
    return record(BINDING, base=home, offset=offset, size=graph[name].size_bytes)


def _border(storages: Storages, position: int, side: str) -> str:
    """Return the name of the storage of an input or an output."""
    return next(name for name, storage in storages.storages.items() if getattr(storage, side) == position)


def _instructions(
    step: Step, schedule: Schedule, sources: dict[int, tuple[int, int, int, int]], target: Target
) -> tuple[list[Record], int]:
    if isinstance(step, Whole):
        cycles = part_cycles(step, schedule.calls[step.call], target)
        # An instruction's word holds 13 seconds at 325 MHz.
        return [_instruction("CALL", operator=step.call, cycles=min(cycles, 2**32 - 1))], cycles
    if isinstance(step, Rows):
        made = _stripe(step, schedule.calls[step.call], target)
        return [made], made["cycles"]
    if isinstance(step, Loop):
        body = [_stripe(part, schedule.calls[part.call], target) for part in step.body]
        words = sum(1 + len(item.values) for item in body)
        head = _instruction("LOOP", count=step.count, body_words=words)
        return [head, *body], step.count * sum(item["cycles"] for item in body)
    if isinstance(step, Fetch):
        source, size, word, destination = sources[step.call]
        values = {"source": source, "base": word, "destination": destination, "size": size, "channel": step.channel}
        return [_instruction("FETCH", **values)], fetch_cycles(size, target)
    assert isinstance(step, Wait)
    return [_instruction("WAIT", channel=step.channel)], 0


def _stripe(step: Rows, call: KernelCall, target: Target) -> Record:
    cycles = part_cycles(step, call, target)
    return _instruction("ROWS", operator=step.call, cycles=cycles, row0=step.row0, row1=step.row1, step=step.step)


def _instruction(name: str, **values: int) -> Record:
    return record(INSTRUCTION_BY_NAME[name], **values)


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """The modelled cost of one operator of the program, in all its ``stripes`` (1 where it is computed whole).

    ``utilisation``: the share of the multipliers at work; ``idle``: why it is below a half. ``bottleneck``: issue, memory or
    compute, whichever takes most. ``parallel``: what the pipelines share out among them. The fields behind ``stripes`` are those of
    ``course.Traffic``.
    """

    name: str
    kernel: str
    output: tuple[int, ...]
    macs: int
    cycles: int
    utilisation: float
    parallel: str
    bottleneck: str
    idle: str
    stripes: int
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    read_bytes: int = 0
    written_bytes: int = 0
    weights_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """A buffer of the arena: its bytes, address, and the first and last step it is live in.

    A rolling buffer holds ``rows_held`` of the ``rows`` of its tensor; both are 0 for other buffers.
    """

    name: str
    size_bytes: int
    offset: int
    first: int
    last: int
    rows_held: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """The facts about a compiled program. All sizes are bytes.

    ``arena_bytes`` is the scratch buffer (inputs and outputs included when they are placed in it), ``bound_bytes`` the
    least any placement of these buffers takes, ``sram_bytes`` all SRAM of a run: scratch, prefetch, inputs, outputs and states,
    ``state_bytes`` the persistent area of ``states``,
    ``fetched_bytes`` what a run copies to scratch and prefetch buffer; ``used_bytes`` what a run touches of them, up to the
    highest byte (None where ``check`` was not asked for). ``other_io_sram_bytes``: what the same schedule takes with inputs and
    outputs at the other place, the caller's buffers or the arena (with copies, whose places depend on that, as much as at this
    one). ``gained_cycles``: how many ``effort`` saved, by those of a port that copies in the background (None at the default
    effort, and where that finds nothing that fits).

    ``cycles`` are those of a run whose copies of constants block, as with the driver's default port; ``copy_cycles`` of them
    are copies. ``overlapped_cycles``: with a port that copies in the background. ``inputs`` and ``outputs`` are the storages of the
    graph's inputs and outputs, as ``OperatorReport.reads`` names them.
    """

    target: str
    operators: tuple[OperatorReport, ...]
    memory: tuple[MemoryItem, ...]
    cycles: int
    copy_cycles: int
    overlapped_cycles: int
    macs: int
    arena_bytes: int
    bound_bytes: int
    placement: str
    prefetch_bytes: int
    fetched_bytes: int
    io_bytes: int
    sram_bytes: int
    other_io_sram_bytes: int
    budget_bytes: int
    weights_bytes: int
    microcode_bytes: int
    milliseconds: float
    utilisation: float
    used_bytes: int | None = None
    effort: str = DEFAULT.name
    gained_cycles: int | None = None
    steps: tuple[StepReport, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    state_bytes: int = 0
    states: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the headline numbers."""
        memory = {"SRAM": self.sram_bytes, "arena": self.arena_bytes, "prefetch": self.prefetch_bytes}
        memory |= {"state": self.state_bytes} if self.state_bytes else {}
        memory |= {"fetched": self.fetched_bytes, "weights": self.weights_bytes, "microcode": self.microcode_bytes}
        sizes = ", ".join(f"{name} {size} B" for name, size in memory.items())
        copies = f"{self.copy_cycles} of them copies, {self.overlapped_cycles} with copies in the background"
        return f"{sizes}\n{self.macs} MACs, {self.cycles} cycles, {copies}"


def report(
    graph: Graph,
    schedule: Schedule,
    storages: Storages,
    layout: Layout,
    program: Program,
    target: Target,
    options: CompileOptions,
    budget: int,
) -> Report:
    """Return the facts of a program that was emitted from this schedule; ``budget`` is the SRAM it may take in bytes."""
    operators = tuple(
        _operator_report(call, *spent, target, storages)
        for call, spent in zip(schedule.calls, spent_on_calls(schedule, target), strict=True)
    )
    sizes = fetched_sizes(schedule, storages)
    fetches = [step for step in schedule.steps if isinstance(step, Fetch)]
    header = program.header
    cycles = header["cycles_low"] | header["cycles_high"] << 32
    macs = sum(operator.macs for operator in operators)
    sram = sram_bytes(graph, schedule, layout, options)
    return Report(
        target=target.name,
        operators=operators,
        memory=_memory(layout, rows_held(schedule, storages)),
        cycles=cycles,
        copy_cycles=copy_cycles(schedule, sizes, target),
        overlapped_cycles=overlapped_cycles(schedule, sizes, durations(schedule, target), target),
        macs=macs,
        arena_bytes=layout.scratch_bytes,
        bound_bytes=layout.placement.bound,
        placement=layout.placement.method,
        prefetch_bytes=schedule.prefetch_bytes,
        fetched_bytes=sum(sizes[step.call] for step in fetches),
        io_bytes=sum(graph[name].size_bytes for name in (*graph.inputs, *graph.outputs)),
        sram_bytes=sram,
        other_io_sram_bytes=sram if fetches else _other_io_bytes(graph, schedule, storages, layout, options),
        budget_bytes=budget,
        weights_bytes=len(program.weights),
        microcode_bytes=len(program.microcode),
        milliseconds=target.milliseconds(cycles),
        utilisation=macs / (cycles * target.macs_per_cycle) if cycles else 0.0,
        steps=steps_of(schedule, sizes, target),
        inputs=tuple(_border(storages, i, "input") for i in range(len(graph.inputs))),
        outputs=tuple(_border(storages, i, "output") for i in range(len(graph.outputs))),
        state_bytes=state_bytes(graph),
        states=tuple(state.tensor for state in graph.states),
    )


def sram_bytes(graph: Graph, schedule: Schedule, layout: Layout, options: CompileOptions) -> int:
    """Return all SRAM that a run takes, in bytes: the arena, the prefetch buffer, states, and the caller's inputs and outputs."""
    return layout.scratch_bytes + schedule.prefetch_bytes + bytes_outside(graph, options.place)


def _other_io_bytes(
    graph: Graph, schedule: Schedule, storages: Storages, layout: Layout, options: CompileOptions
) -> int:
    """Return the SRAM of the schedule with inputs and outputs at the other place: laid out anew, or as it is with them out or behind."""
    elsewhere = replace(options, io_place=ARENA if options.place == CALLER else CALLER)
    anew = lay_out(schedule, storages, elsewhere.place, work=0).scratch_bytes
    outer = {piece.name for piece in storages.storages.values() if piece.is_border}
    # Patches have memory of their own, which is no tensor's.
    ends = [layout.placement.offsets[item.name] + item.size for item in layout.items if item.name not in outer]
    border = sum(aligned(graph[name].size_bytes) for name in (*graph.inputs, *graph.outputs))
    as_it_is = layout.scratch_bytes + border if elsewhere.place == ARENA else max(ends, default=0)
    return min(anew, as_it_is) + bytes_outside(graph, elsewhere.place)


def _operator_report(call: KernelCall, stripes: int, cycles: int, target: Target, storages: Storages) -> OperatorReport:
    cost = call_cost(call, target)
    issue = stripes * cost.issue_cycles
    cost = replace(cost, issue_cycles=issue, compute_cycles=cycles - issue)
    utilisation = cost.macs / (cost.cycles * target.macs_per_cycle) if cost.cycles else 0.0
    work = call.views["output"].extents, cost.macs, cost.cycles, utilisation, cost.parallel
    reasons = bottleneck(cost), idle_reason(call, cost, target, stripes)
    moved = traffic(call, storages)
    sizes = moved.read_bytes, moved.written_bytes, moved.weights_bytes
    return OperatorReport(call.name, call.kernel, *work, *reasons, stripes, moved.reads, moved.writes, *sizes)


def _memory(layout: Layout, rows: Mapping[str, tuple[int, int]]) -> tuple[MemoryItem, ...]:
    offsets = layout.placement.offsets
    ordered = sorted(layout.items, key=lambda item: (item.first, offsets[item.name]))
    return tuple(
        MemoryItem(i.name, i.size, offsets[i.name], i.first, i.last, *rows.get(i.name, (0, 0))) for i in ordered
    )
