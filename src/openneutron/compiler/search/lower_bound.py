# SPDX-License-Identifier: BSD-3-Clause
"""Lower bounds of the SRAM budget of a graph."""

from __future__ import annotations

from openneutron.compiler.graph.legalize import legalize
from openneutron.compiler.memory.layout import io_outside
from openneutron.compiler.schedule.in_place import in_place
from openneutron.compiler.search.call_lists import for_cascades
from openneutron.compiler.search.cascade.bound import Bounds, bounds
from openneutron.compiler.search.cascade.network import network
from openneutron.compiler.select.select import select_calls
from openneutron.ir import Graph
from openneutron.options import CALLER, CompileOptions
from openneutron.targets import Target


def memory_bounds(graph: Graph, target: Target, options: CompileOptions = CompileOptions()) -> Bounds:
    """Return lower bounds of the budget over the orders that are searched, inputs and outputs included, without prefetch."""
    separate, calls = select_calls(legalize(graph))
    lists = for_cascades(calls, in_place(separate, calls), options.place)
    found = [bounds(network(each.calls, each.storages, target, options.place == CALLER)) for each in lists]
    outside = io_outside(graph, options.place)
    by_rows = min(each.by_rows for each in found)
    return Bounds(
        by_rows + outside,
        any(each.is_exact for each in found if each.by_rows == by_rows),
        min(each.any_plan for each in found) + outside,
    )
