# SPDX-License-Identifier: BSD-3-Clause
"""The fastest schedule of a graph within the SRAM budget, or the error that names the least budget that would do."""

from __future__ import annotations

from collections.abc import Sequence

from openneutron.compiler.memory.layout import io_outside
from openneutron.compiler.search.budget import Shortfall, budget_bytes, over_budget
from openneutron.compiler.search.fit import Fitted, Infeasible, fit
from openneutron.compiler.search.suggestions import suggestions
from openneutron.compiler.select.select import Selection
from openneutron.ir import Graph
from openneutron.options import CompileOptions
from openneutron.targets import Target


def within_budget(graph: Graph, selected: Sequence[Selection], target: Target, options: CompileOptions) -> Fitted:
    """Return the fastest feasible schedule of all selections of a graph. Raises BudgetError where there is no such schedule."""
    budget = budget_bytes(options.sram_budget, target)
    outside = io_outside(graph, options.place)
    found = [fit(calls, storages, target, options, budget - outside) for storages, calls in selected]
    feasible = [each for each in found if not isinstance(each, Infeasible)]
    if feasible:
        return min(feasible, key=lambda each: (each.cycles(target), each.sram_bytes))
    too_little = [(each, pair) for each, pair in zip(found, selected, strict=True) if isinstance(each, Infeasible)]
    least, (storages, calls) = _least(too_little)
    others = suggestions(graph, calls, storages, target, options, budget)
    raise over_budget(graph.name, [Shortfall(least + outside, others)], 1, budget)


def _least(found: Sequence[tuple[Infeasible, Selection]]) -> tuple[int, Selection]:
    """Return the smallest sufficient size in bytes and its selection; of equal sizes the first selection."""
    best: tuple[int, int] | None = None
    for index in sorted(range(len(found)), key=lambda index: found[index][0].floor_bytes):
        # One byte more: an earlier selection of the same size wins.
        least = found[index][0].least_bytes() if best is None else found[index][0].least_bytes(best[0] + 1)
        best = (least, index) if best is None else min(best, (least, index))
    assert best is not None
    return best[0], found[best[1]][1]
