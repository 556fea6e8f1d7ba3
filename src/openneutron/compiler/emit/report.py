# SPDX-License-Identifier: BSD-3-Clause
"""Report the facts of a compiled program: cycles by operator, buffers, sizes, traffic, and the steps of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from openneutron.compiler.cost.cycles import call_cost, fetch_cycles, host_of
from openneutron.compiler.cost.estimate import (
    NO_WORK,
    Estimate,
    Loss,
    Work,
    bottleneck,
    estimate,
    notable_losses,
    total,
    work_of_call,
    work_of_copies,
    work_of_start,
)
from openneutron.compiler.emit.emit import Packed, border, packed
from openneutron.compiler.legalize.partition import reason_of
from openneutron.compiler.place.place import Layout, sram_bytes
from openneutron.compiler.rewrite.jobs import RESULT_BYTES
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
    overlapped_cycles,
    spent_on_calls,
)
from openneutron.compiler.search.tuning import DEFAULT
from openneutron.compiler.select.calls import KernelCall, Storages, View, state_bytes
from openneutron.ir import Graph
from openneutron.isa import Program
from openneutron.isa.kernels.row import CostClass
from openneutron.isa.rows import KERNEL_BY_NAME
from openneutron.options import CompileOptions, budget_bytes
from openneutron.targets import Target

KINDS = {Whole: "whole", Rows: "rows", Loop: "loop", Fetch: "copy", Wait: "wait"}
"""The name of each kind of step in reports."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """A step of a run: its kind (``whole``, ``rows``, ``loop``, ``copy`` or ``wait``), the numbers of its kernel
    calls, the number of its iterations, and the cycles of all iterations together.

    For a copy of constants, ``calls`` has the call that needs them, ``offset`` is their address in the arena, and
    ``size_bytes`` their size. An address at or above the arena's end is in the prefetch buffer.
    """

    kind: str
    calls: tuple[int, ...]
    times: int
    cycles: int
    offset: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Traffic:
    """The storages that a kernel call reads and writes, and how many bytes of each kind. A byte of a tensor counts
    once.

    ``weights_bytes`` is the size of the call's constants, with whole tables. Calls with equal constants all count them,
    though the program stores them once.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    read_bytes: int
    written_bytes: int
    weights_bytes: int


def _step(step: Step, schedule: Schedule, sizes: Mapping[int, int], target: Target) -> StepReport:
    """Return a step of a schedule for the report. ``sizes`` has the bytes of each call's constants, by the number of the call."""
    kind = KINDS[type(step)]
    if isinstance(step, Fetch):
        size = sizes[step.call]
        return StepReport(kind, (step.call,), 1, fetch_cycles(size, target), step.destination, size)
    times = step.count if isinstance(step, Loop) else 1
    return StepReport(kind, calls_in(step), times, compute_cycles(step, schedule, target))


def traffic(call: KernelCall, storages: Storages) -> Traffic:
    """Return the storages that a call reads and writes, and the bytes of them."""
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
    """Return a lower bound of the bytes that any schedule of these calls copies between external memory and the
    memory of the NPU.

    The bound counts each output once, each constant once, and of each input the largest part that one call reads. It
    does not count tables from which a kernel itself copies entries. ``known`` caches packed constants.
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
    """Return for each rolling buffer, by the name of its storage, the number of rows that it holds and the number of
    rows of its whole tensor."""
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
    """The modelled cost of an operator of the program: the sum over its ``stripes`` (1 if it is computed whole).

    ``utilisation`` is the share of the multipliers that work, and ``losses`` are the reasons if it is below a half.
    For a call of the host core, they are 0 and empty. ``bottleneck`` is dispatch if that takes more cycles than the
    computation. Otherwise it is memory if the call only moves bytes, and compute if not. ``parallel`` is the
    dimension that is divided among the pipelines. The fields from ``reads`` to ``weights_bytes`` are those of
    ``Traffic``. ``work`` has the cycles by term. ``on_cpu`` is the reason why the host core makes the call in place
    of the NPU; it is empty for a call of the NPU. ``is_exact`` is False if the NPU's own driver rescales the results,
    whose bytes may then differ from LiteRT's.
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
    on_cpu: str = ""
    work: Work = NO_WORK
    is_exact: bool = True

    def estimate(self, target: Target) -> Estimate:
        """Return the estimate of the operator's time on the chip, with its range. ``target`` is that of the program."""
        return estimate(self.work, target, is_layer=True)

    @property
    def idle(self) -> str:
        """Return the reasons in ``losses`` as text."""
        return "; ".join(loss.text for loss in self.losses)


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """A buffer of the arena: its bytes, its address, and the first and the last step in which it is live.

    A rolling buffer holds ``rows_held`` of the ``rows`` of its tensor. Both numbers are 0 for other buffers. ``region`` is the
    memory region that has the buffer; it is empty for a target with one region.
    """

    name: str
    size_bytes: int
    offset: int
    first: int
    last: int
    rows_held: int = 0
    rows: int = 0
    region: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The facts about a compiled program. All sizes are in bytes.

    Memory: ``arena_bytes`` is the size of the scratch buffer; it includes the inputs and outputs that are placed in
    it. ``bound_bytes`` is a size that no placement of the arena's buffers can go below. ``state_bytes`` is the
    persistent memory of ``states``. ``sram_bytes`` is all SRAM of a run: scratch, prefetch buffer, ``far_bytes``,
    inputs, outputs and states. ``used_bytes`` is the part of scratch, prefetch buffer and ``far_bytes`` up to the
    highest byte of each that a run touches (None if the audit did not run). On a CPU with several memory regions,
    scratch, prefetch buffer and ``far_bytes`` are the sizes of the first three. ``external_bytes`` is the size of the
    tensors in external memory.

    Time: ``cycles`` is the latency in the cost model. With a chip's copy engine that works in the background,
    ``cycles`` equals ``overlapped_cycles``, and kernels wait for copies during ``copy_cycles`` of them. Without such
    an engine, each copy of constants blocks, as with the driver's default port: ``copy_cycles`` of ``cycles`` are
    copies, and ``overlapped_cycles`` is the latency with a port that copies in the background. ``engine_cycles`` is
    the time of all copies. ``gained_cycles`` are the cycles that ``effort`` saved over the default effort, with a
    port that copies in the background. It is None at the default effort. It is also None if the default effort has no
    program: no feasible schedule, or only programs with faults.

    Copies: ``fetched_bytes`` is the size of the constants that a run copies to scratch and prefetch buffer.
    ``moved_bytes`` is the size of the tensors and table entries that a run copies between external memory and the
    memory of the NPU. ``traffic_bound_bytes`` is a lower bound of what any schedule copies: the accessed parts of the
    inputs, the outputs, and all constants once. ``kept_bytes`` is the part of ``weights_bytes`` in tables that are
    never copied whole: a run copies only the entries that it reads.

    ``inputs`` and ``outputs`` are the storages of the graph's inputs and outputs, named as in
    ``OperatorReport.reads``. ``faults`` are the faults that the audit found in the programs of faster schedules.
    These programs were therefore not taken. A fault is a mistake in the compiler. ``folded_quantize`` are the results
    of the QUANTIZE operators that were folded into the operators before them.
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
    far_bytes: int = 0
    faults: tuple[str, ...] = ()
    folded_quantize: tuple[str, ...] = ()

    @property
    def work(self) -> Work:
        """Return the cycles of a run by term, without the start of an inference."""
        kernels = (item.work for item in self.operators if not KERNEL_BY_NAME[item.kernel].is_transfer)
        return total((*kernels, work_of_copies(self.copy_cycles, self.fetched_bytes, self.moved_bytes)))

    def estimate(self, target: Target) -> Estimate:
        """Return the estimate of the latency of a run on the chip, with its range. ``target`` is that of the program."""
        return estimate(total((self.work, work_of_start(target))), target)

    @property
    def cpu_calls(self) -> tuple[OperatorReport, ...]:
        """Return the operators that the host core computes in the program, beside the NPU."""
        return tuple(item for item in self.operators if item.on_cpu)

    @property
    def cpu_call_cycles(self) -> int:
        """Return the part of ``cycles`` in which the host core computes ``cpu_calls``."""
        return sum(item.cycles for item in self.cpu_calls)

    @property
    def cpu_call_macs(self) -> int:
        """Return the part of ``macs`` that the host core computes."""
        return sum(item.macs for item in self.cpu_calls)

    @property
    def jobs(self) -> tuple[OperatorReport, ...]:
        """Return the operators whose matrix products the NPU's own driver computes."""
        return tuple(item for item in self.operators if KERNEL_BY_NAME[item.kernel].traits.cost.kind is CostClass.JOB)

    def __str__(self) -> str:
        """Return the headline numbers as text."""
        memory = {"SRAM": self.sram_bytes, "arena": self.arena_bytes, "prefetch": self.prefetch_bytes}
        memory |= {"far": self.far_bytes} if self.far_bytes else {}
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
    traffic_bound_bytes: int,
) -> Report:
    """Return the facts about a program that was emitted from this schedule. ``traffic_bound_bytes`` is a field of the report."""
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
    beside = [operator for operator in operators if operator.on_cpu]
    npu_cycles = cycles - sum(operator.cycles for operator in beside)
    npu_macs = macs - sum(operator.macs for operator in beside)
    sram = sram_bytes(graph, schedule, layout, options)
    moved = (
        each.written_bytes
        for each, call in zip(operators, schedule.calls, strict=True)
        if call.is_transfer or (schedule.is_tiled and call.traits.copied_by_kernel)
    )
    return Report(
        target=target.name,
        operators=operators,
        memory=_memory(layout, rows_held(schedule, storages), target),
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
        budget_bytes=budget_bytes(options.sram_budget, target),
        weights_bytes=len(program.weights),
        microcode_bytes=len(program.microcode),
        utilisation=npu_macs / (npu_cycles * target.macs_per_cycle) if npu_cycles else 0.0,
        steps=tuple(_step(step, schedule, sizes, target) for step in schedule.steps),
        inputs=tuple(border(storages, i, "input") for i in range(len(graph.inputs))),
        outputs=tuple(border(storages, i, "output") for i in range(len(graph.outputs))),
        state_bytes=state_bytes(graph),
        states=tuple(state.tensor for state in graph.states),
        engine_cycles=copying,
        moved_bytes=sum(moved),
        external_bytes=layout.external_bytes,
        traffic_bound_bytes=traffic_bound_bytes,
        kept_bytes=kept_bytes(schedule, storages),
        far_bytes=layout.third_bytes,
    )


def _operator_report(call: KernelCall, stripes: int, cycles: int, target: Target, storages: Storages) -> OperatorReport:
    cost = call_cost(call, target)
    on_cpu = reason_of(target) if host_of(call.row, target) is not None else ""
    issue = stripes * cost.issue_cycles
    cost = replace(cost, issue_cycles=issue, compute_cycles=cycles - issue)
    utilisation = cost.macs / (cost.cycles * target.macs_per_cycle) if cost.cycles and not on_cpu else 0.0
    work = call.views["output"].extents, cost.macs, cost.cycles, utilisation, cost.parallel
    reasons = bottleneck(cost), () if on_cpu else notable_losses(call, cost, target, stripes)
    moved = traffic(call, storages)
    sizes = moved.read_bytes, moved.written_bytes, moved.weights_bytes
    return OperatorReport(
        call.name,
        call.kernel,
        *work,
        *reasons,
        stripes,
        moved.reads,
        moved.writes,
        *sizes,
        on_cpu,
        work_of_call(call, cost, target),
        call.params.get("job_result_bytes", RESULT_BYTES) == RESULT_BYTES,
    )


def _memory(layout: Layout, rows: Mapping[str, tuple[int, int]], target: Target) -> tuple[MemoryItem, ...]:
    found = []
    names = [region.name for region in target.regions] if len(target.regions) > 1 else [""]
    for region, items, placement in zip(
        names, (layout.items, *layout.far_items), (layout.placement, *layout.far), strict=False
    ):
        offsets = placement.offsets
        for item in sorted(items, key=lambda item: (item.first, offsets[item.name])):
            held = rows.get(item.name, (0, 0))
            found.append(MemoryItem(item.name, item.size, offsets[item.name], item.first, item.last, *held, region))
    return tuple(found)
