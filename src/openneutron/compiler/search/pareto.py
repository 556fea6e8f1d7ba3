# SPDX-License-Identifier: BSD-3-Clause
"""Memory against modelled time: the fastest schedule of a graph for each amount of SRAM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from openneutron.compiler.graph.legalize import legalize
from openneutron.compiler.memory.layout import io_outside, lay_out
from openneutron.compiler.memory.prefetch_plans import all_plans
from openneutron.compiler.schedule.needs import in_place
from openneutron.compiler.schedule.schedule import spent_on_calls, whole_schedule
from openneutron.compiler.search.call_lists import for_whole_tensors
from openneutron.compiler.search.fit import Fitted, cascade_searches, fit_merged, fit_plain, prefetch_searches
from openneutron.compiler.select.calls import KernelCall, Storages
from openneutron.compiler.select.select import selections
from openneutron.ir import Graph
from openneutron.options import CompileOptions
from openneutron.targets import Target

STEP = 0.93
"""The memory of a point, at most, in relation to the point before."""

WORTH = 1.02
"""The least ratio of the times of two consecutive points that ``thinned`` keeps; the two end points are exempt."""


@dataclass(frozen=True, slots=True)
class Point:
    """With a budget of ``sram_bytes``, inputs and outputs included, a run takes at most ``cycles`` modelled cycles."""

    sram_bytes: int
    cycles: int


def pareto(graph: Graph, target: Target, options: CompileOptions = CompileOptions()) -> tuple[Point, ...]:
    """Return the points from the least memory to whole tensors, each faster than all with less memory.

    With constant prefetch, the memory of constants is included, and cycles are those of a port that copies in the background.
    """
    found = [_of_selection(*each, graph, target, options) for each in selections(legalize(graph))]
    return front([point for points in found for point in points])


def _of_selection(
    separate: Storages, calls: Sequence[KernelCall], graph: Graph, target: Target, options: CompileOptions
) -> list[Point]:
    """``separate`` are the storages before ``in_place``."""
    if options.prefetch_constants:
        return _with_prefetch(calls, separate, target, options, io_outside(graph, options.place))
    storages = in_place(separate, calls)
    outside = io_outside(graph, options.place)
    ordered = for_whole_tensors(calls, storages, options.place)
    whole = whole_schedule(ordered)
    arena = lay_out(whole, storages, options.place).scratch_bytes
    points = [Point(arena + outside, sum(cycles for _, cycles in spent_on_calls(whole, target)))]
    searches = cascade_searches(calls, storages, target, options)
    merged = fit_merged(ordered, separate, target, options)
    if merged is not None:
        points.append(Point(merged.sram_bytes + outside, _cycles(merged, target)))
    for search in searches:
        points += [Point(found.budget_bytes + outside, found.cycles) for found in search.levels(STEP)]
    least = fit_plain(calls, storages, target, options, min(search.least_bytes() for search in searches))
    assert isinstance(least, Fitted)
    return [*points, Point(least.sram_bytes + outside, _cycles(least, target))]


def _with_prefetch(
    calls: Sequence[KernelCall], storages: Storages, target: Target, options: CompileOptions, outside: int
) -> list[Point]:
    good, families = prefetch_searches(calls, storages, target, options)
    plans = [good, *all_plans(chain(*families), good.cycles)]
    return list(thinned(front([Point(plan.budget_bytes + outside, plan.cycles) for plan in plans])))


def _cycles(fitted: Fitted, target: Target) -> int:
    return sum(cycles for _, cycles in spent_on_calls(fitted.schedule, target))


def front(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the points that no other point is better than, by growing memory."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (point.sram_bytes, point.cycles)):
        if not kept or point.cycles < kept[-1].cycles:
            kept.append(point)
    return tuple(kept)


def thinned(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the points of a front without those that are less than 2% faster than the one kept before.

    The point of the least memory and the fastest point always stay.
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
