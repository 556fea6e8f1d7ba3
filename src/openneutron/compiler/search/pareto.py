# SPDX-License-Identifier: BSD-3-Clause
"""Find the trade-off of memory against modelled time: the fastest schedule of a graph for each amount of SRAM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol, TypeVar

from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.legalize.quantize import as_asked
from openneutron.compiler.place.place import bytes_outside
from openneutron.compiler.place.prefetch import all_plans
from openneutron.compiler.rewrite.passes import Passes, selections
from openneutron.compiler.schedule.schedule import spent_on_calls
from openneutron.compiler.search.fit import Task, Tasks, within_budget
from openneutron.compiler.search.fitted import Fitted
from openneutron.compiler.search.tiles.fit import TiledTask, sizes_up_to
from openneutron.errors import BudgetError
from openneutron.ir import Graph
from openneutron.options import ARENA, CompileOptions
from openneutron.targets import Target

STEP = 0.93
"""The maximum ratio of the memory of a cascade to the memory of the next larger cascade that is tried."""

WORTH = 1.02
"""The minimum ratio of the cycles of two consecutive points that ``thinned`` keeps. The fastest point is always kept."""


@dataclass(frozen=True, slots=True)
class Point:
    """A budget in bytes, inputs and outputs included, and the modelled cycles of a run with this budget."""

    sram_bytes: int
    cycles: int


def pareto(graph: Graph, target: Target, options: CompileOptions = CompileOptions()) -> tuple[Point, ...]:
    """Return the Pareto front of memory and time, from the least memory to that of whole tensors. Each point is
    faster than all points with less memory.

    With constant prefetch, the memory includes constants, and cycles are those of a port that copies in the
    background. For a Neutron-S, no point has more memory than the chip. Raises BudgetError if the memory of a
    Neutron-S does not suffice.
    """
    graph = as_asked(graph, options).graph
    if target.moves_tiles:
        return front(_in_tiles(graph, target, options))
    outside = bytes_outside(graph, options.place)
    found: list[Point] = []
    for storages, calls in selections(legalize(graph), passes=Passes(off=frozenset(options.without_passes))):
        task = Task(calls, storages, target, options)
        found += _with_prefetch(task, outside) if options.prefetch_constants else _without_prefetch(task, outside)
    return front(found)


def _in_tiles(graph: Graph, target: Target, options: CompileOptions) -> list[Point]:
    """Return a point for the whole memory of the chip, and points for smaller sizes of ``sizes_up_to``, down to the
    least budget with a schedule.

    For a graph of few calls, each of these sizes gives a point. For a graph of many calls, each size takes a search
    of its own. So a size is skipped if it is more than twice the memory that the previous schedule takes.
    """
    tasks = Tasks(legalize(graph), kept=True)
    are_few = all(isinstance(task, TiledTask) and task.fit.searches.are_few for task in tasks.of(target, options))
    points: list[Point] = []
    most, outside = int(target.sram.value * 1024), bytes_outside(graph, ARENA)
    below = most
    for budget in dict.fromkeys((most, *(size + outside for size in sizes_up_to(most - outside)))):
        if budget > below:
            continue
        try:
            fitted = within_budget(graph, tasks, target, replace(options, sram_budget=budget))
        except BudgetError as error:
            if points and error.least_bytes < points[-1].sram_bytes:
                fitted = within_budget(graph, tasks, target, replace(options, sram_budget=error.least_bytes))
                points.append(Point(error.least_bytes, fitted.cycles(target)))
            elif not points:
                raise
            break
        points.append(Point(budget, fitted.cycles(target)))
        below = most if are_few else 2 * fitted.sram_bytes
    return points


def _without_prefetch(task: Task, outside: int) -> list[Point]:
    (order,) = task.orders()
    whole, merged = task.whole(order), task.merged(order)
    searches = task.cascades()
    points = [Point(found.budget_bytes + outside, found.cycles) for each in searches for found in each.levels(STEP)]
    least = task.plain(min(search.least_bytes() for search in searches))
    for fitted in (whole, merged, least):
        if isinstance(fitted, Fitted):
            cycles = sum(cycles for _, cycles in spent_on_calls(fitted.schedule, task.target))
            points.append(Point(fitted.sram_bytes + outside, cycles))
    return points


def _with_prefetch(task: Task, outside: int) -> list[Point]:
    good, families = task.prefetches()
    plans = [good, *all_plans(chain(*families), good.cycles)]
    return list(thinned(front([Point(plan.budget_bytes + outside, plan.cycles) for plan in plans])))


class HasCosts(Protocol):
    """A value with memory and time."""

    @property
    def sram_bytes(self) -> int: ...
    @property
    def cycles(self) -> int: ...


Costs = TypeVar("Costs", bound=HasCosts)


def front(points: Sequence[Costs]) -> tuple[Costs, ...]:
    """Return the Pareto-optimal points, in ascending order of memory: each is faster than all points of no more memory."""
    kept: list[Costs] = []
    for point in sorted(points, key=lambda point: (point.sram_bytes, point.cycles)):
        if not kept or point.cycles < kept[-1].cycles:
            kept.append(point)
    return tuple(kept)


def thinned(points: Sequence[Costs]) -> tuple[Costs, ...]:
    """Return the points of a front without those that are less than 2% faster than the last point kept before them.

    The point with the least memory and the fastest point are always kept.
    """
    kept = list(points[:1])
    for point in points[1:]:
        if point.cycles * WORTH <= kept[-1].cycles or point == points[-1]:
            kept.append(point)
    return tuple(kept)


def one_after_the_other(fronts: Sequence[Sequence[Point]]) -> tuple[Point, ...]:
    """Return the ``thinned`` front of several graphs that run one after the other in the same memory."""
    least = max((points[0].sram_bytes for points in fronts), default=0)
    sizes = sorted({point.sram_bytes for points in fronts for point in points if point.sram_bytes >= least})
    sums = [sum(min(p.cycles for p in points if p.sram_bytes <= size) for points in fronts) for size in sizes]
    return thinned(front([Point(size, cycles) for size, cycles in zip(sizes, sums, strict=True)]))
