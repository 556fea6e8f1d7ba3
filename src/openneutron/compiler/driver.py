# SPDX-License-Identifier: BSD-3-Clause
"""Compile a graph to a program: run the stages of the compiler in order. ``Compiled`` is the result."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any

from openneutron import ops
from openneutron.compiler.emit.audit import audit
from openneutron.compiler.emit.emit import Packed, emit
from openneutron.compiler.emit.report import Report, least_traffic_bytes, report
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.legalize.partition import type_reason
from openneutron.compiler.legalize.quantize import fold_quantize
from openneutron.compiler.place.place import Layout, bytes_outside, lay_out, sram_bytes
from openneutron.compiler.schedule.schedule import Schedule, whole_schedule
from openneutron.compiler.search.fit import Task, Tasks, within_budget
from openneutron.compiler.search.fitted import Fitted, Shortfall, over_budget
from openneutron.compiler.search.regions import in_regions, space_of
from openneutron.compiler.search.tiles.fit import TiledTask
from openneutron.compiler.search.tuning import DEFAULT
from openneutron.compiler.select.calls import Storages
from openneutron.compiler.select.select import Trial
from openneutron.errors import BudgetError, CompilerFaultError, InvalidModelError
from openneutron.ir import Graph, Tensor
from openneutron.isa import Program
from openneutron.options import ARENA, CompileOptions, budget_bytes
from openneutron.targets import Target


@dataclass(frozen=True, slots=True)
class Details:
    """The intermediate results of a compile.

    ``legalized`` is the graph from which the calls were selected. ``schedule`` has the steps, and ``layout`` the
    address of each buffer.
    """

    legalized: Graph
    schedule: Schedule
    storages: Storages
    layout: Layout


@dataclass(frozen=True)
class Compiled:
    """A compiled program, the graph that it computes, and the report about it.

    The graph has the inputs and outputs with their quantization. ``facts`` is the report, or a function that makes it. ``details`` is
    None for a program that comes from a cache.
    """

    program: Program
    graph: Graph
    facts: Report | Callable[[], Report] = field(repr=False, compare=False)
    details: Details | None = field(default=None, repr=False)

    @cached_property
    def report(self) -> Report:
        """Return the report. It is made when it is first read, since a compile needs none."""
        return self.facts if isinstance(self.facts, Report) else self.facts()

    def with_facts(self, **facts: Any) -> Compiled:
        """Return the compiled program with these fields of its report changed."""
        return replace(self, facts=partial(_changed, self, facts))

    @property
    def legalized(self) -> Graph:
        return self._known.legalized

    @property
    def schedule(self) -> Schedule:
        return self._known.schedule

    @property
    def storages(self) -> Storages:
        return self._known.storages

    @property
    def layout(self) -> Layout:
        return self._known.layout

    @property
    def _known(self) -> Details:
        assert self.details is not None, "a program from a cache has no schedule"
        return self.details

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Return the graph's inputs, in the order in which a run takes them."""
        return tuple(self.graph[name] for name in self.graph.inputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Return the graph's outputs, in the order in which a run returns them."""
        return tuple(self.graph[name] for name in self.graph.outputs)

    def __str__(self) -> str:
        """Return the calls, the steps, the buffers, and the report's headline numbers as text."""
        shared = str(self.storages)
        return "\n".join([str(self.schedule), str(self.layout), *([shared] if shared else []), str(self.report)])


def _changed(compiled: Compiled, facts: Mapping[str, Any]) -> Report:
    return replace(compiled.report, **facts)


SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
"""Fractions of the memory of the best schedule that are tried as budgets for other schedules. Smaller budgets give
smaller stripes, other cascades and other addresses."""


def alternatives(
    graph: Graph, all_tasks: Tasks, target: Target, options: CompileOptions, best: Fitted
) -> Iterator[Fitted]:
    """Yield schedules within the budget that differ from ``best`` and from each other.

    First come schedules that the searches find for other lists of kernel calls and for smaller budgets. Schedules
    without constant prefetch follow. The last ones run the calls one after the other on whole tensors, without
    writing a result over an operand.
    """
    tried, space = [best], space_of(graph, target, options)
    for each in _candidates(graph, all_tasks, target, options, best.sram_bytes):
        found = in_regions(each, space, target)
        if found is not None and found not in tried:
            tried.append(found)
            yield found


def _candidates(
    graph: Graph, all_tasks: Tasks, target: Target, options: CompileOptions, taken: int
) -> Iterator[Fitted]:
    budget = budget_bytes(options.sram_budget, target)
    budget -= bytes_outside(graph, ARENA if target.moves_tiles else options.place)
    for prefetch in dict.fromkeys((options.prefetch_constants, False)):
        tasks = all_tasks.of(target, replace(options, prefetch_constants=prefetch))
        for size in (budget, *(int(taken * share) for share in SHARES)):
            all_found = (task.within(size) for task in tasks)
            feasible = (each for each in all_found if isinstance(each, Fitted))
            yield from sorted(feasible, key=lambda each: each.cycles(target))
        for task in tasks if not prefetch else ():
            yield from _of_searches(task, budget) if isinstance(task, Task) else ()
    for task in all_tasks.of(target, replace(options, prefetch_constants=False)):
        if not isinstance(task, TiledTask):
            schedule = whole_schedule(task.calls)
            found = Fitted(schedule, lay_out(schedule, task.separate, options.place), task.separate)
            if found.sram_bytes <= budget:
                yield found


def _of_searches(task: Task, budget: int) -> Iterator[Fitted]:
    """Yield the fastest schedule within ``budget`` bytes of each search for cascades; nothing of a search that finds
    none."""
    for search in task.cascades():
        chosen = search.fastest(budget)
        if chosen is not None:
            yield Fitted(chosen.schedule, chosen.layout, chosen.storages)


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A graph with the results of the stages that do not depend on options, for ``compile_prepared``.

    ``graph`` is the graph as given, and ``legal`` the legalized one. ``tasks`` makes the searches for schedules of
    ``legal`` on demand, for a target and options.
    """

    graph: Graph
    legal: Graph = field(repr=False)
    tasks: Tasks = field(repr=False)


def prepared(graph: Graph, trial: Trial | None = None, kept: bool = False) -> Prepared:
    """Legalize a graph, and return it ready for ``compile_prepared``.

    ``trial`` is the result of ``try_compile`` for a graph with the same nodes; the names of the two graphs may
    differ. With ``kept``, later compiles with other budgets reuse the results of earlier searches. Raises
    InvalidModelError if a node has no kernel (partition the graph first).
    """
    assert trial is None or trial.graph.nodes == graph.nodes, "the trial is one of another graph"
    legal = _legalized(graph) if trial is None else replace(trial.legal, name=graph.name)
    return Prepared(graph, legal, Tasks(legal, {} if trial is None else trial.calls, kept))


@contextmanager
def _without_collections() -> Iterator[None]:
    """Turn off the garbage collector for the block. A search makes up to a million values, and hardly any of them are
    in reference cycles.

    The collector visits all values that are still alive when the block ends. So the block should include the last use
    of them.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@_without_collections()
def compile_graph(
    graph: Graph, target: Target, options: CompileOptions = CompileOptions(), trial: Trial | None = None
) -> Compiled:
    """Return the compiled program of a graph. The operator table must accept every node; see ``prepared`` and ``compile_prepared``."""
    return compile_prepared(prepared(graph, trial), target, options)


def compile_prepared(graph: Prepared, target: Target, options: CompileOptions = CompileOptions()) -> Compiled:
    """Return the compiled program of a graph.

    If ``options.effort`` is not the default effort, the graph is compiled at both efforts, and the faster program is
    returned. The report then has the cycles gained over the default effort. Raises BudgetError if no schedule is
    found within the SRAM budget, and InvalidModelError if a node can't be in a program for ``target``
    (``type_reason``).

    With ``options.check`` each program is audited. If the audit finds a fault, the next schedule is compiled instead,
    and the report has the fault. Raises CompilerFaultError if the programs of all schedules have faults.

    With ``options.fold_quantize`` the program is that of the folded graph, and the report has the names of what was
    folded.
    """
    if options.fold_quantize:
        folded = fold_quantize(graph.graph)
        ready = prepared(folded.graph) if folded.names else graph
        made = compile_prepared(ready, target, replace(options, fold_quantize=False))
        return replace(made.with_facts(folded_quantize=folded.names), graph=graph.graph)
    if options.effort == DEFAULT.name:
        return _compiled(graph, target, options)
    found: list[Compiled | None] = []
    infeasible: list[BudgetError] = []
    faulty: list[CompilerFaultError] = []
    for effort in (DEFAULT.name, options.effort):
        try:
            found.append(_compiled(graph, target, replace(options, effort=effort)))
        except BudgetError as error:
            found.append(None)
            infeasible.append(error)
        except CompilerFaultError as error:
            found.append(None)
            faulty.append(error)
    default, _ = found
    best = min((each for each in found if each is not None), key=_overlapped_cycles, default=None)
    if best is None and faulty:
        raise faulty[0]
    if best is None:
        least = min(infeasible, key=lambda error: error.least_bytes)
        raise over_budget(graph.graph.name, [least], 1, budget_bytes(options.sram_budget, target), target)
    gained = None if default is None else _overlapped_cycles(default) - _overlapped_cycles(best)
    faults = dict.fromkeys(
        (*map(str, faulty), *(fault for each in found if each is not None for fault in each.report.faults))
    )
    return best.with_facts(effort=options.effort, gained_cycles=gained, faults=tuple(faults))


def _overlapped_cycles(compiled: Compiled) -> int:
    return compiled.report.overlapped_cycles


def _compiled(given: Prepared, target: Target, options: CompileOptions) -> Compiled:
    """Return the compiled program of a graph at the effort of ``options``. ``compile_prepared`` describes the audit and
    the errors."""
    for node in given.graph.nodes:
        reason = type_reason(given.graph, node, target, options.makes_host_calls)
        if reason is not None:
            raise InvalidModelError(f"{node.op} '{node.name}': {reason}.")
    with _without_collections():
        best = within_budget(given.graph, given.tasks, target, options)
    faults: list[CompilerFaultError] = []
    for fitted in chain((best,), alternatives(given.graph, given.tasks, target, options, best)):
        known: Packed = {}
        compiled = finish(
            given.graph, given.legal, fitted.storages, fitted.schedule, target, options, fitted.layout, known
        )
        if not options.check:
            return compiled
        try:
            made = checked(compiled, known)
        except CompilerFaultError as error:
            faults.append(error)
        else:
            return made.with_facts(faults=tuple(map(str, faults)))
    raise faults[0]


def _legalized(graph: Graph) -> Graph:
    for node in graph.nodes:
        reason = ops.reject(graph, node)
        if reason is not None:
            raise InvalidModelError(f"{node.op} '{node.name}': {reason}.")
    return legalize(graph)


def finish(
    graph: Graph,
    legal: Graph,
    storages: Storages,
    schedule: Schedule,
    target: Target,
    options: CompileOptions,
    layout: Layout | None = None,
    known: Packed | None = None,
) -> Compiled:
    """Return the compiled program of a schedule, with its report.

    Without ``layout`` the addresses are computed here. ``known`` caches packed constants (see ``packed``). Raises
    BudgetError if the schedule needs more than the SRAM budget.
    """
    schedule.verify()
    layout = lay_out(schedule, storages, options.place) if layout is None else layout
    budget = budget_bytes(options.sram_budget, target)
    sram = sram_bytes(graph, schedule, layout, options)
    if sram > budget:
        raise over_budget(graph.name, [Shortfall(sram, {})], 1, budget, target)
    known = {} if known is None else known
    program = emit(legal, schedule, storages, layout, target, options.profile, known)
    least = least_traffic_bytes(schedule, storages, known) if schedule.is_tiled else 0
    facts = partial(report, graph, schedule, storages, layout, program, target, options, least)
    return Compiled(program, graph, facts, Details(legal, schedule, storages, layout))


def checked(compiled: Compiled, known: Packed | None = None) -> Compiled:
    """Return the compiled program with ``used_bytes`` in its report. Raises CompilerFaultError if the audit of the program finds a fault.

    ``known`` caches packed constants (see ``packed``).
    """
    found = audit(compiled.program, compiled.schedule, compiled.storages, known)
    if found.findings:
        raise CompilerFaultError(
            f"'{compiled.graph.name}': the compiled program is wrong in {len(found.findings)} places; {found.findings[0]}. "
            "This is a mistake in the compiler: please report it, with the model."
        )
    used = found.scratch_bytes + found.prefetch_bytes + found.far_bytes
    return compiled.with_facts(used_bytes=used)
