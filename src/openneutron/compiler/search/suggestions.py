# SPDX-License-Identifier: BSD-3-Clause
"""Which other options let a graph run within a budget that it does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from openneutron.compiler.memory.layout import io_outside
from openneutron.compiler.search.fit import Fitted, fit
from openneutron.compiler.select.calls import KernelCall
from openneutron.compiler.select.storage import Storages
from openneutron.errors import Suggestions
from openneutron.ir import Graph
from openneutron.options import ARENA, CALLER, CompileOptions
from openneutron.targets import Target

WITHOUT_PREFETCH = "without --prefetch-constants"
ELSEWHERE = {ARENA: "with --io-place caller", CALLER: "with --io-place arena"}


def suggestions(
    graph: Graph,
    calls: Sequence[KernelCall],
    storages: Storages,
    target: Target,
    options: CompileOptions,
    budget: int,
) -> Suggestions:
    """Return the other options under which a graph fits ``budget`` bytes, in words, and the bytes it then takes.

    A combination of two options is a suggestion only where neither option suffices alone. ``storages`` are those before
    ``in_place``.
    """
    # No option makes the inputs or the outputs smaller.
    io_bytes = [sum(graph[name].size_bytes for name in names) for names in (graph.inputs, graph.outputs)]
    found: dict[str, int] = {}
    for words, other in _others(options).items():
        outside = io_outside(graph, other.place)
        if max(outside, *io_bytes) > budget or any(each in words for each in found):
            continue
        fitted = fit(calls, storages, target, other, budget - outside)
        if isinstance(fitted, Fitted):
            found[words] = fitted.sram_bytes + outside
    return found


def _others(options: CompileOptions) -> dict[str, CompileOptions]:
    """Return the options that are tried instead, in words, single changes before their combination."""
    elsewhere = replace(options, io_place=ARENA if options.place == CALLER else CALLER)
    if not options.prefetch_constants:
        return {ELSEWHERE[options.place]: elsewhere}
    return {
        WITHOUT_PREFETCH: replace(options, prefetch_constants=False),
        ELSEWHERE[options.place]: elsewhere,
        f"{WITHOUT_PREFETCH} and {ELSEWHERE[options.place]}": replace(elsewhere, prefetch_constants=False),
    }
