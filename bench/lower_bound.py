# SPDX-License-Identifier: BSD-3-Clause
"""Lower bounds of the memory of all plans, to compare with the least memory that the search finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.place.place import bytes_outside
from openneutron.compiler.rewrite.call_list import CallList
from openneutron.compiler.rewrite.passes import Passes, for_cascades, select_calls
from openneutron.compiler.search.cascade.network import Network, network, segment, window_rows
from openneutron.compiler.search.cascade.search import PlanSearch, boundary_bytes, count_of_all
from openneutron.compiler.search.cascade.stripes import evaluate
from openneutron.compiler.search.tuning import DEFAULT
from openneutron.compiler.select.needs import in_place
from openneutron.ir import Graph
from openneutron.options import CALLER, CompileOptions
from openneutron.targets import Target

EXHAUSTIVE = 20000
"""The most candidates of a network that are all evaluated."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Lower bounds of the arena in bytes. ``by_rows``: of all row-striped plans, by the search's estimate; ``is_exact``: one plan
    takes that much.

    ``any_plan``: of all plans that cut the calls, in this order, into runs and keep the tensors between two runs whole, however a
    run is executed (in patches, for instance).
    """

    by_rows: int
    is_exact: bool
    any_plan: int


def bounds(network: Network) -> Bounds:
    """Return the bounds of one order of calls.

    Every plan is a path through the cuts between calls, and its memory is the maximum over the runs on the path. With a lower
    bound for each run, the minimum over all paths of the maximum on the path is therefore a bound of all plans. A run takes at
    least the tensors that are live throughout, and the larger of two sums: the tensors last used in it (they exist before anything
    is written), and the tensors defined in it for later calls (they exist when everything else has gone). By rows, a run also holds
    the rows that one row of a reader needs of each piece between its calls. For a run of one call, stripes of one row are best:
    they allow the largest overlap. Of a small network every candidate is evaluated instead, and the bound is exact.
    """
    count = len(network.calls)
    boundary = boundary_bytes(network, [range(first + 1, count + 1) for first in range(count)])
    any_plan = _least_path(network, lambda first, end: boundary[first, end])
    if count_of_all(network) <= EXHAUSTIVE:
        effort = replace(DEFAULT, longest=count, everything=EXHAUSTIVE, patches=())
        return Bounds(PlanSearch(network, effort=effort).least().peak_bytes, True, any_plan)
    held = window_rows(network)

    def row_by_row(first: int, end: int) -> int | None:
        run = segment(network, first, end) if network.calls[first].by_rows else None
        if run is None:
            return None
        return evaluate(run, first, 1).peak_bytes if end - first == 1 else run.least_bytes(held)

    return Bounds(_least_path(network, row_by_row), False, any_plan)


def _least_path(network: Network, at_least: Callable[[int, int], int | None]) -> int:
    """Return the minimum over all paths through the cuts of the maximum on the path.

    Whole calls are evaluated; ``at_least`` is the lower bound of a run, or None where neither this run nor a longer one with the
    same end is possible.
    """
    peaks = [0]
    for end in range(1, len(network.calls) + 1):
        alone = segment(network, end - 1, end)
        assert alone is not None
        best = max(peaks[-1], evaluate(alone, end - 1, max(1, network.calls[end - 1].rows)).peak_bytes)
        for first in range(end - 1, -1, -1):
            taken = at_least(first, end)
            if taken is None:
                break
            best = min(best, max(peaks[first], taken))
        peaks.append(best)
    return peaks[-1]


def memory_bounds(graph: Graph, target: Target, options: CompileOptions = CompileOptions()) -> Bounds:
    """Return lower bounds of the budget over the orders that are searched, inputs and outputs included, without prefetch."""
    separate, calls = select_calls(legalize(graph))
    given = CallList(tuple(calls), separate)
    lists = for_cascades(given, in_place(separate, calls), Passes(target, options.place))
    found = [bounds(network(each.calls, each.storages, target, options.place == CALLER)) for each in lists]
    outside = bytes_outside(graph, options.place)
    by_rows = min(each.by_rows for each in found)
    return Bounds(
        by_rows + outside,
        any(each.is_exact for each in found if each.by_rows == by_rows),
        min(each.any_plan for each in found) + outside,
    )
