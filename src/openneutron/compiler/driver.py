# SPDX-License-Identifier: BSD-3-Clause
"""A graph to a program, all stages in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from openneutron import ops
from openneutron.compiler.cost.bottleneck import bottleneck, idle_reason
from openneutron.compiler.cost.cycles import call_cost
from openneutron.compiler.emit.emit import emit
from openneutron.compiler.graph.legalize import legalize
from openneutron.compiler.memory.layout import Layout, io_outside, lay_out
from openneutron.compiler.memory.prefetch_plans import fetched_sizes
from openneutron.compiler.schedule.schedule import Fetch, Schedule
from openneutron.compiler.schedule.timeline import copy_cycles, durations, overlapped_cycles, spent_on_calls
from openneutron.compiler.search.budget import budget_bytes, over_budget
from openneutron.compiler.search.effort import BY_NAME, DEFAULT
from openneutron.compiler.search.fit import TooLittle, Wanted, fit
from openneutron.compiler.search.suggestions import ways_out
from openneutron.compiler.select.calls import KernelCall
from openneutron.compiler.select.select import Selection, selections
from openneutron.compiler.select.storage import Storages
from openneutron.compiler.select.trial import Trial
from openneutron.errors import BudgetError, CompilerFaultError, InvalidModelError, WaysOut
from openneutron.ir import Graph, Tensor
from openneutron.isa import Program, aligned
from openneutron.options import ARENA, CALLER, CompileOptions
from openneutron.targets import Target


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """What one operator of the program costs, modelled, in all its ``stripes`` (1 where it is computed whole).

    ``utilisation``: the share of the multipliers at work; ``idle``: why it is below a half. ``bottleneck``: issue, memory or
    compute, whichever takes most. ``parallel``: what the pipelines share out among them.
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


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """A buffer of the arena: its bytes, address, and the first and last step it is live in."""

    name: str
    size_bytes: int
    offset: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Report:
    """What a compile came to. All sizes are bytes.

    ``arena_bytes`` is the scratch buffer (inputs and outputs included when they are placed in it), ``bound_bytes`` the
    least any placement of these buffers takes, ``sram_bytes`` all SRAM of a run: scratch, prefetch, inputs and outputs,
    ``fetched_bytes`` what a run copies to scratch and prefetch buffer; ``used_bytes`` what a run touches of them, up to the
    highest byte (None where ``check`` was not asked for). ``other_io_sram_bytes``: what the same schedule takes with inputs and
    outputs at the other place, the caller's buffers or the arena (with copies, whose places depend on that, as much as at this
    one). ``gained_cycles``: how many ``effort`` saved, by those of a port that copies in the background (None at the default
    effort, and where that finds nothing that fits).

    ``cycles`` are those of a run whose copies of constants block, as with the driver's default port; ``copy_cycles`` of them
    are copies. ``overlapped_cycles``: with a port that copies in the background.
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

    def __str__(self) -> str:
        """Return the headline numbers."""
        memory = {"SRAM": self.sram_bytes, "arena": self.arena_bytes, "prefetch": self.prefetch_bytes}
        memory |= {"fetched": self.fetched_bytes, "weights": self.weights_bytes, "microcode": self.microcode_bytes}
        sizes = ", ".join(f"{name} {size} B" for name, size in memory.items())
        copies = f"{self.copy_cycles} of them copies, {self.overlapped_cycles} with copies in the background"
        return f"{sizes}\n{self.macs} MACs, {self.cycles} cycles, {copies}"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program, the graph it computes (its border tensors and their quantization), and the report.

    ``schedule`` and ``layout`` say where each tensor lies; ``legalized`` is the graph the calls were selected from.
    """

    program: Program
    graph: Graph
    report: Report
    legalized: Graph = field(repr=False)
    schedule: Schedule = field(repr=False)
    storages: Storages = field(repr=False)
    layout: Layout = field(repr=False)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The graph's inputs, in the order of a run's."""
        return tuple(self.graph[name] for name in self.graph.inputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The graph's outputs, in the order of a run's."""
        return tuple(self.graph[name] for name in self.graph.outputs)

    def __str__(self) -> str:
        """Return calls, steps, buffers and the report's headline numbers."""
        shared = str(self.storages)
        return "\n".join([str(self.schedule), str(self.layout), *([shared] if shared else []), str(self.report)])


def compile_graph(
    graph: Graph, target: Target, options: CompileOptions = CompileOptions(), trial: Trial | None = None
) -> Compiled:
    """The program of a graph whose every node the operator table accepts.

    ``target`` counts, not the name of one in ``options``. trial: what ``try_compile`` made of this graph, under any name.
    At another effort than the default one it is the better of what the two find, and the report says what was gained.
    Raises InvalidModelError where a node has no kernel (partition the graph first), BudgetError where the SRAM budget is
    below the least that would do.
    """
    if options.effort == DEFAULT.name:
        return _compile_graph(graph, target, options, trial)
    found: list[Compiled | None] = []
    short: list[BudgetError] = []
    for effort in (DEFAULT.name, options.effort):
        try:
            found.append(_compile_graph(graph, target, replace(options, effort=effort), trial))
        except BudgetError as error:
            found.append(None)
            short.append(error)
    usual, _ = found
    best = min((each for each in found if each is not None), key=_fastest, default=None)
    if best is None:
        least = min(short, key=lambda error: error.least_bytes)
        raise over_budget(graph.name, [least], 1, budget_bytes(options.sram_budget, target))
    gained = None if usual is None else _fastest(usual) - _fastest(best)
    return replace(best, report=replace(best.report, effort=options.effort, gained_cycles=gained))


def _fastest(compiled: Compiled) -> int:
    """Cycles with a port that copies in the background."""
    return compiled.report.overlapped_cycles


def _legalized(graph: Graph) -> Graph:
    for node in graph.nodes:
        reason = ops.reject(graph, node)
        if reason is not None:
            raise InvalidModelError(f"{node.op} '{node.name}': {reason}.")
    return legalize(graph)


def _compile_graph(graph: Graph, target: Target, options: CompileOptions, trial: Trial | None) -> Compiled:
    assert trial is None or trial.graph.nodes == graph.nodes, "the trial is one of another graph"
    legal = _legalized(graph) if trial is None else replace(trial.legal, name=graph.name)
    outside = io_outside(graph, options.place)
    budget = budget_bytes(options.sram_budget, target)
    room = budget - outside
    wanted = Wanted(target, options.place, options.prefetch_constants, BY_NAME[options.effort])
    selected = selections(legal) if trial is None else selections(legal, trial.calls)
    found = [fit(calls, storages, wanted, room) for storages, calls in selected]
    fitting = [each for each in found if not isinstance(each, TooLittle)]
    if not fitting:
        least, (storages, calls) = _least(
            [(each, pair) for each, pair in zip(found, selected, strict=True) if isinstance(each, TooLittle)]
        )
        border = [sum(graph[name].size_bytes for name in names) for names in (graph.inputs, graph.outputs)]
        short = _Short(least + outside, ways_out(calls, storages, wanted, budget, border))
        raise over_budget(graph.name, [short], 1, budget)
    fitted = min(fitting, key=lambda each: (each.cycles(target), each.sram_bytes))
    compiled = finish(graph, legal, fitted.storages, fitted.schedule, target, options, fitted.layout)
    return checked(compiled) if options.check else compiled


def _least(found: Sequence[tuple[TooLittle, Selection]]) -> tuple[int, Selection]:
    """Return the smallest sufficient size in bytes and its selection; of equal sizes the first selection."""
    best: tuple[int, int] | None = None
    for index in sorted(range(len(found)), key=lambda index: found[index][0].floor_bytes):
        # One byte more: an earlier selection of the same size wins.
        least = found[index][0].least_bytes() if best is None else found[index][0].least_bytes(best[0] + 1)
        best = (least, index) if best is None else min(best, (least, index))
    assert best is not None
    return best[0], found[best[1]][1]


def checked(compiled: Compiled) -> Compiled:
    """The same with ``used_bytes`` in its report. Raises CompilerFaultError where the program reads what is not there."""
    # Imported here, since most compiles do without it.
    from openneutron.compiler.emit.audit import audit

    found = audit(compiled.program, compiled.schedule, compiled.storages)
    if found.findings:
        raise CompilerFaultError(
            f"'{compiled.graph.name}': the compiled program is wrong in {len(found.findings)} places; {found.findings[0]}. "
            "This is a mistake in the compiler: please report it, with the model."
        )
    used = found.scratch_bytes + found.prefetch_bytes
    return replace(compiled, report=replace(compiled.report, used_bytes=used))


def finish(
    graph: Graph,
    legal: Graph,
    storages: Storages,
    schedule: Schedule,
    target: Target,
    options: CompileOptions,
    layout: Layout | None = None,
) -> Compiled:
    """Budget, program and report of a schedule, which is laid out here where ``layout`` is not given."""
    schedule.verify()
    layout = lay_out(schedule, storages, options.place) if layout is None else layout
    sram = layout.scratch_bytes + schedule.prefetch_bytes + io_outside(graph, options.place)
    budget = budget_bytes(options.sram_budget, target)
    if sram > budget:
        raise over_budget(graph.name, [_Short(sram, {})], 1, budget)
    program = emit(legal, schedule, storages, layout, target, options.place, options.profile)
    report = _report(graph, schedule, storages, layout, program, target, sram, budget)
    if not any(isinstance(step, Fetch) for step in schedule.steps):
        report = replace(report, other_io_sram_bytes=_other_io_bytes(graph, schedule, storages, layout, options))
    return Compiled(program, graph, report, legal, schedule, storages, layout)


def _other_io_bytes(
    graph: Graph, schedule: Schedule, storages: Storages, layout: Layout, options: CompileOptions
) -> int:
    """What the schedule takes with inputs and outputs at the other place: laid out anew, or as it is with them out or behind."""
    elsewhere = replace(options, io_place=ARENA if options.place == CALLER else CALLER)
    anew = lay_out(schedule, storages, elsewhere.place, work=0).scratch_bytes
    outer = {piece.name for piece in storages.storages.values() if piece.input is not None or piece.output is not None}
    # Patches have memory of their own, which is no tensor's.
    ends = [layout.placement.offsets[item.name] + item.size for item in layout.items if item.name not in outer]
    border = sum(aligned(graph[name].size_bytes) for name in (*graph.inputs, *graph.outputs))
    as_it_is = layout.scratch_bytes + border if elsewhere.place == ARENA else max(ends, default=0)
    return min(anew, as_it_is) + io_outside(graph, elsewhere.place)


@dataclass(frozen=True, slots=True)
class _Short:
    least_bytes: int
    ways_out: WaysOut


def _report(
    graph: Graph,
    schedule: Schedule,
    storages: Storages,
    layout: Layout,
    program: Program,
    target: Target,
    sram: int,
    budget: int,
) -> Report:
    operators = tuple(
        _operator_report(call, *spent, target)
        for call, spent in zip(schedule.calls, spent_on_calls(schedule, target), strict=True)
    )
    sizes = fetched_sizes(schedule, storages)
    header = program.header
    cycles = header["cycles_low"] | header["cycles_high"] << 32
    macs = sum(operator.macs for operator in operators)
    return Report(
        target=target.name,
        operators=operators,
        memory=_memory(layout),
        cycles=cycles,
        copy_cycles=copy_cycles(schedule, sizes, target),
        overlapped_cycles=overlapped_cycles(schedule, sizes, durations(schedule, target), target),
        macs=macs,
        arena_bytes=layout.scratch_bytes,
        bound_bytes=layout.placement.bound,
        placement=layout.placement.method,
        prefetch_bytes=schedule.prefetch_bytes,
        fetched_bytes=sum(sizes[step.call] for step in schedule.steps if isinstance(step, Fetch)),
        io_bytes=sum(graph[name].size_bytes for name in (*graph.inputs, *graph.outputs)),
        sram_bytes=sram,
        other_io_sram_bytes=sram,
        budget_bytes=budget,
        weights_bytes=len(program.weights),
        microcode_bytes=len(program.microcode),
        milliseconds=target.milliseconds(cycles),
        utilisation=macs / (cycles * target.macs_per_cycle) if cycles else 0.0,
    )


def _operator_report(call: KernelCall, stripes: int, cycles: int, target: Target) -> OperatorReport:
    cost = call_cost(call, target)
    issue = stripes * cost.issue_cycles
    cost = replace(cost, issue_cycles=issue, compute_cycles=cycles - issue)
    utilisation = cost.macs / (cost.cycles * target.macs_per_cycle) if cost.cycles else 0.0
    return OperatorReport(
        call.name,
        call.kernel,
        call.views["output"].extents,
        cost.macs,
        cost.cycles,
        utilisation,
        cost.parallel,
        bottleneck(cost),
        idle_reason(call, cost, target, stripes),
        stripes,
    )


def _memory(layout: Layout) -> tuple[MemoryItem, ...]:
    offsets = layout.placement.offsets
    ordered = sorted(layout.items, key=lambda item: (item.first, offsets[item.name]))
    return tuple(MemoryItem(i.name, i.size, offsets[i.name], i.first, i.last) for i in ordered)


__all__ = [
    "Compiled",
    "MemoryItem",
    "OperatorReport",
    "Report",
    "compile_graph",
    "finish",
]
