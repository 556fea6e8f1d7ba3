# SPDX-License-Identifier: BSD-3-Clause
"""The least SRAM a graph can take, as far as that can be proved."""

from __future__ import annotations

from openneutron.compiler.cascade import in_place
from openneutron.compiler.cascade.bound import Bounds, bounds
from openneutron.compiler.cascade.network import network
from openneutron.compiler.compile import io_outside, select_calls
from openneutron.compiler.layout import CALLER
from openneutron.compiler.legalize import legalize
from openneutron.compiler.options import CompileOptions
from openneutron.compiler.variants import for_cascades
from openneutron.ir import Graph
from openneutron.targets import Target


def memory_bounds(graph: Graph, target: Target, options: CompileOptions = CompileOptions()) -> Bounds:
    """Bounds of the least budget over the orders that are searched, inputs and outputs included; constants are not copied."""
    separate, calls = select_calls(legalize(graph))
    variants = for_cascades(calls, in_place(separate, calls), options.io)
    found = [bounds(network(each.calls, each.storages, target, options.io == CALLER)) for each in variants]
    outside = io_outside(graph, options)
    by_rows = min(each.by_rows for each in found)
    return Bounds(
        by_rows + outside,
        any(each.is_exact for each in found if each.by_rows == by_rows),
        min(each.any_plan for each in found) + outside,
    )
