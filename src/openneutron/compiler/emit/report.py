# SPDX-License-Identifier: BSD-3-Clause
"""Report the facts about a compiled program: cycles by operator, buffers, sizes, traffic, and the steps of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from openneutron.compiler.cost.cycles import call_cost, fetch_cycles
from openneutron.compiler.cost.losses import Loss, bottleneck, notable_losses
from openneutron.compiler.emit.emit import border
from openneutron.compiler.emit.packing import Packed, packed
from openneutron.compiler.place.layout import Layout, bytes_outside
from openneutron.compiler.schedule.schedule import (
    Fetch,
    Loop,
    Rows,
    Schedule,
    Step,
    Wait,
    Whole,
    calls_in,
    compute_cycles,
    constant_operands,
    copy_cycles,
    fetched_bytes,
    fetched_sizes,
    kept_bytes,
    spent_on_calls,
)
from openneutron.compiler.schedule.timeline import overlapped_cycles
from openneutron.compiler.search.effort import DEFAULT
from openneutron.compiler.select.calls import KernelCall, Storages, View
from openneutron.compiler.select.states import state_bytes
from openneutron.ir import Graph
from openneutron.isa import Program
from openneutron.options import ARENA, CompileOptions
from openneutron.targets import Target

KINDS = {Whole: "whole", Rows: "rows", Loop: "loop", Fetch: "copy", Wait: "wait"}
"""The name of each kind of step in reports."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """A step of a run: its kind (``whole``, ``rows``, ``loop``, ``copy`` or ``wait``), the numbers of its kernel calls, the
    number of its iterations, and its cycles, all iterations included.

    A copy of constants has the number of the call that needs them, with the address in the arena (behind its end: in the
    prefetch buffer) and the size.
    """

    kind: str
    calls: tuple[int, ...]
    times: int
    cycles: int
    offset: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Traffic:
    """The storages that a kernel call reads and writes, by name, and the bytes: each byte of a tensor counts once.

    ``weights_bytes`` are the constants of the call, tables whole. Equal constants of two calls are in a program once.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    read_bytes: int
    written_bytes: int
    weights_bytes: int


def steps_of(schedule: Schedule, sizes: Mapping[int, int], target: Target) -> tuple[StepReport, ...]:
    """Return the steps of a schedule; ``sizes`` are the bytes of each call's constants, by the call's index."""
    return tuple(_step(step, schedule, sizes, target) for step in schedule.steps)


def _step(step: Step, schedule: Schedule, sizes: Mapping[int, int], target: Target) -> StepReport:
    kind = KINDS[type(step)]
    if isinstance(step, Fetch):
        size = sizes[step.call]
        return StepReport(kind, (step.call,), 1, fetch_cycles(size, target), step.destination, size)
    times = step.count if isinstance(step, Loop) else 1
    return StepReport(kind, calls_in(step), times, compute_cycles(step, schedule, target))


def traffic(call: KernelCall, storages: Storages) -> Traffic:
    """Return the storages and the bytes that a call reads and writes."""
    inputs: dict[str, View] = {}
    for name, view in call.views.items():
        if call.reads(name) and storages[view.tensor].constant is None:
            inputs.setdefault(storages.of[view.tensor], view)
    results = {storages.of[call.views[name].tensor]: call.views[name] for name in call.results}
    return Traffic(
        reads=tuple(inputs),
        writes=tuple(results),
        read_bytes=sum(view.distinct_bytes for view in inputs.values()),
        written_bytes=sum(view.distinct_bytes for view in results.values()),
        weights_bytes=fetched_bytes(call, storages)
        + sum(map(len, constant_operands(call, storages, kept=True).values())),
    )


def least_traffic_bytes(schedule: Schedule, storages: Storages, known: Packed | None = None) -> int:
    """Return a lower bound of the bytes that any schedule of the calls copies between external memory and the memory of the NPU.

    The bound counts the largest part of each input that a call reads, each output once, and each constant once. ``known``: see ``packed``.
    """
    total = sum(storage.size_bytes for storage in storages.storages.values() if storage.output is not None)
    read: dict[str, int] = {}
    constants: dict[object, int] = {}
    for call in schedule.calls:
        for name, view in call.views.items():
            storage = storages[view.tensor]
            if storage.input is not None and call.reads(name):
                read[storage.name] = max(read.get(storage.name, 0), view.distinct_bytes)
        for blob in (*packed(call, known).values(), *constant_operands(call, storages).values()):
            constants[blob] = len(blob)
    return total + sum(read.values()) + sum(constants.values())


def rows_held(schedule: Schedule, storages: Storages) -> dict[str, tuple[int, int]]:
    """Return the rows of each rolling buffer, and the rows of its tensor, by the storage's name."""
    rows: dict[str, tuple[int, int]] = {}
    for call in schedule.calls:
        for view in call.views.values():
            name = storages.of[view.tensor]
            if name in schedule.rings:
                whole = max(view.extents[1], rows.get(name, (0, 0))[1])
                rows[name] = (schedule.rings[name], whole)
    return rows


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """The modelled cost of one operator of the program, in all its ``stripes`` (1 where it is computed whole).

    ``utilisation``: the share of the multipliers at work; ``losses``: why it is below a half. ``bottleneck``: dispatch, memory or
    compute, whichever takes most. ``parallel``: the dimension that is divided among the pipelines. The fields behind ``stripes`` are those of
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
    losses: tuple[Loss, ...]
    stripes: int
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    read_bytes: int = 0
    written_bytes: int = 0
    weights_bytes: int = 0

    @property
    def idle(self) -> str:
        """Return the reasons of ``losses`` in words."""
        return "; ".join(loss.text for loss in self.losses)


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

    ``arena_bytes`` is the scratch buffer (inputs and outputs included when they are placed in it), ``bound_bytes`` a
    lower bound of the arena for these buffers, ``sram_bytes`` all SRAM of a run: scratch, prefetch, inputs, outputs and states,
    ``state_bytes`` the persistent area of ``states``,
    ``fetched_bytes`` what a run copies to scratch and prefetch buffer; ``used_bytes`` what a run touches of them, up to the
    highest byte (None without ``check``). ``faults``: what the audit has found in programs of faster schedules, which were not taken; a
    fault is a mistake in the compiler.
    ``gained_cycles``: the cycles that ``effort`` saved with a port that copies in the background (None at the default
    effort, and where the default effort finds no feasible schedule).

    ``cycles`` are those of a run whose copies of constants block, as with the driver's default port; ``copy_cycles`` of them
    are copies. ``overlapped_cycles``: with a port that copies in the background. Where the chip's copy engine works in the background,
    ``cycles`` are the same as these, and kernels wait in ``copy_cycles`` of them. ``engine_cycles`` are those of all copies,
    ``moved_bytes`` the bytes of tensors and of tables' entries that a run copies between external memory and the memory of the NPU, ``external_bytes`` the tensors that are
    kept in external memory. ``traffic_bound_bytes``: a lower bound of the bytes that any schedule copies: the accessed parts of
    the inputs, the outputs and all constants once. ``inputs`` and ``outputs`` are the storages of the
    graph's inputs and outputs, as ``OperatorReport.reads`` names them. ``kept_bytes`` of ``weights_bytes`` are tables of which a run copies
    the entries that it reads, and no others.
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
    engine_cycles: int = 0
    moved_bytes: int = 0
    external_bytes: int = 0
    traffic_bound_bytes: int = 0
    kept_bytes: int = 0
    faults: tuple[str, ...] = ()

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
    known: Packed | None = None,
) -> Report:
    """Return the facts of a program that was emitted from this schedule; ``budget`` is the SRAM it may take in bytes. ``known``: see
    ``packed``."""
    operators = tuple(
        _operator_report(call, *spent, target, storages)
        for call, spent in zip(schedule.calls, spent_on_calls(schedule, target), strict=True)
    )
    sizes = fetched_sizes(schedule, storages)
    fetches = [step for step in schedule.steps if isinstance(step, Fetch)]
    header = program.header
    cycles = header["cycles_low"] | header["cycles_high"] << 32
    copying, overlapped = copy_cycles(schedule, sizes, target), overlapped_cycles(schedule, sizes, target)
    waiting = copying
    if target.copies_in_background:
        cycles, waiting = overlapped, overlapped - (cycles - copying)
    macs = sum(operator.macs for operator in operators)
    sram = sram_bytes(graph, schedule, layout, options)
    return Report(
        target=target.name,
        operators=operators,
        memory=_memory(layout, rows_held(schedule, storages)),
        cycles=cycles,
        copy_cycles=waiting,
        overlapped_cycles=overlapped,
        macs=macs,
        arena_bytes=layout.scratch_bytes,
        bound_bytes=layout.placement.bound,
        placement=layout.placement.method,
        prefetch_bytes=schedule.prefetch_bytes,
        fetched_bytes=sum(sizes[step.call] for step in fetches),
        io_bytes=sum(graph[name].size_bytes for name in (*graph.inputs, *graph.outputs)),
        sram_bytes=sram,
        budget_bytes=budget,
        weights_bytes=len(program.weights),
        microcode_bytes=len(program.microcode),
        milliseconds=target.milliseconds(cycles),
        utilisation=macs / (cycles * target.macs_per_cycle) if cycles else 0.0,
        steps=steps_of(schedule, sizes, target),
        inputs=tuple(border(storages, i, "input") for i in range(len(graph.inputs))),
        outputs=tuple(border(storages, i, "output") for i in range(len(graph.outputs))),
        state_bytes=state_bytes(graph),
        states=tuple(state.tensor for state in graph.states),
        engine_cycles=copying,
        moved_bytes=sum(
            each.written_bytes
            for each, call in zip(operators, schedule.calls, strict=True)
            if call.is_transfer or (schedule.is_tiled and call.traits.copied_by_kernel)
        ),
        external_bytes=layout.external_bytes,
        traffic_bound_bytes=least_traffic_bytes(schedule, storages, known) if schedule.is_tiled else 0,
        kept_bytes=kept_bytes(schedule, storages),
    )


def sram_bytes(graph: Graph, schedule: Schedule, layout: Layout, options: CompileOptions) -> int:
    """Return all SRAM that a run takes, in bytes: the arena, the prefetch buffer, states, and the caller's inputs and outputs."""
    return (
        layout.scratch_bytes
        + schedule.prefetch_bytes
        + bytes_outside(graph, ARENA if schedule.is_tiled else options.place)
    )


def _operator_report(call: KernelCall, stripes: int, cycles: int, target: Target, storages: Storages) -> OperatorReport:
    cost = call_cost(call, target)
    issue = stripes * cost.issue_cycles
    cost = replace(cost, issue_cycles=issue, compute_cycles=cycles - issue)
    utilisation = cost.macs / (cost.cycles * target.macs_per_cycle) if cost.cycles else 0.0
    work = call.views["output"].extents, cost.macs, cost.cycles, utilisation, cost.parallel
    reasons = bottleneck(cost), notable_losses(call, cost, target, stripes)
    moved = traffic(call, storages)
    sizes = moved.read_bytes, moved.written_bytes, moved.weights_bytes
    return OperatorReport(call.name, call.kernel, *work, *reasons, stripes, moved.reads, moved.writes, *sizes)


def _memory(layout: Layout, rows: Mapping[str, tuple[int, int]]) -> tuple[MemoryItem, ...]:
    offsets = layout.placement.offsets
    ordered = sorted(layout.items, key=lambda item: (item.first, offsets[item.name]))
    return tuple(
        MemoryItem(i.name, i.size, offsets[i.name], i.first, i.last, *rows.get(i.name, (0, 0))) for i in ordered
    )
