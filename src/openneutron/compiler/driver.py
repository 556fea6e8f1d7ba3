# SPDX-License-Identifier: BSD-3-Clause
"""A graph to a program, all stages in order."""

from __future__ import annotations

from dataclasses import replace

from openneutron import ops
from openneutron.compiler.emit.emit import Compiled, emit, report, sram_bytes
from openneutron.compiler.graph.legalize import legalize
from openneutron.compiler.memory.layout import Layout, lay_out
from openneutron.compiler.schedule.schedule import Schedule
from openneutron.compiler.search.effort import DEFAULT
from openneutron.compiler.search.fit import Shortfall, budget_bytes, over_budget, within_budget
from openneutron.compiler.select.calls import Storages
from openneutron.compiler.select.select import Trial, selections
from openneutron.errors import BudgetError, CompilerFaultError, InvalidModelError
from openneutron.ir import Graph
from openneutron.options import CompileOptions
from openneutron.targets import Target


def compile_graph(
    graph: Graph, target: Target, options: CompileOptions = CompileOptions(), trial: Trial | None = None
) -> Compiled:
    """Return the program of a graph whose every node the operator table accepts.

    ``trial`` is the result of ``try_compile`` for this graph, under any name.
    At another effort than the default one the program is the faster of two: the default effort's and that effort's. The report
    then holds the cycles gained. Raises InvalidModelError where a node has no kernel (partition the graph first), and BudgetError
    where no schedule is found within the SRAM budget.
    """
    if options.effort == DEFAULT.name:
        return _compiled(graph, target, options, trial)
    found: list[Compiled | None] = []
    infeasible: list[BudgetError] = []
    for effort in (DEFAULT.name, options.effort):
        try:
            found.append(_compiled(graph, target, replace(options, effort=effort), trial))
        except BudgetError as error:
            found.append(None)
            infeasible.append(error)
    default, _ = found
    best = min((each for each in found if each is not None), key=_overlapped_cycles, default=None)
    if best is None:
        least = min(infeasible, key=lambda error: error.least_bytes)
        raise over_budget(graph.name, [least], 1, budget_bytes(options.sram_budget, target))
    gained = None if default is None else _overlapped_cycles(default) - _overlapped_cycles(best)
    return replace(best, report=replace(best.report, effort=options.effort, gained_cycles=gained))


def _overlapped_cycles(compiled: Compiled) -> int:
    return compiled.report.overlapped_cycles


def _compiled(graph: Graph, target: Target, options: CompileOptions, trial: Trial | None) -> Compiled:
    """Return the program at one effort: every stage of the compiler, in order."""
    assert trial is None or trial.graph.nodes == graph.nodes, "the trial is one of another graph"
    legal = _legalized(graph) if trial is None else replace(trial.legal, name=graph.name)
    selected = selections(legal) if trial is None else selections(legal, trial.calls)
    fitted = within_budget(graph, selected, target, options)
    compiled = finish(graph, legal, fitted.storages, fitted.schedule, target, options, fitted.layout)
    return checked(compiled) if options.check else compiled


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
) -> Compiled:
    """Return the program and the report of a schedule; a schedule without ``layout`` is laid out here.

    Raises BudgetError where the schedule takes more than the SRAM budget.
    """
    schedule.verify()
    layout = lay_out(schedule, storages, options.place) if layout is None else layout
    budget = budget_bytes(options.sram_budget, target)
    sram = sram_bytes(graph, schedule, layout, options)
    if sram > budget:
        raise over_budget(graph.name, [Shortfall(sram, {})], 1, budget)
    program = emit(legal, schedule, storages, layout, target, options.profile)
    facts = report(graph, schedule, storages, layout, program, target, options, budget)
    return Compiled(program, graph, facts, legal, schedule, storages, layout)


def checked(compiled: Compiled) -> Compiled:
    """Return the same with ``used_bytes`` in its report. Raises CompilerFaultError where the program reads undefined bytes."""
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
