# SPDX-License-Identifier: BSD-3-Clause
"""Find other schedules of a graph, for a compile whose best schedule gives a faulty program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from openneutron.compiler.place.layout import bytes_outside, lay_out
from openneutron.compiler.schedule.schedule import whole_schedule
from openneutron.compiler.search.fit import Task, Tasks
from openneutron.compiler.search.fitted import Fitted
from openneutron.compiler.search.regions import in_regions, space_of
from openneutron.compiler.search.tiles import TiledTask
from openneutron.ir import Graph
from openneutron.options import ARENA, CompileOptions, budget_bytes
from openneutron.targets import Target

SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
"""Fractions of the memory of the best schedule that are tried as budgets. Smaller budgets give smaller stripes, other cascades and other
addresses."""


def alternatives(
    graph: Graph, all_tasks: Tasks, target: Target, options: CompileOptions, best: Fitted
) -> Iterator[Fitted]:
    """Yield schedules within the budget that differ from ``best`` and from each other.

    First come those of other lists of calls and of smaller budgets, then those without constant prefetch. The last ones run the calls one
    after the other on whole tensors, with no result in the memory of an operand."""
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
    """Yield the fastest schedule of each search for cascades."""
    for search in task.cascades():
        chosen = search.fastest(budget)
        if chosen is not None:
            yield Fitted(chosen.schedule, chosen.layout, chosen.storages)
