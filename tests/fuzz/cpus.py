# SPDX-License-Identifier: BSD-3-Clause
"""Random graphs on random processors: ``python -m tests.fuzz.cpus FIRST END`` goes through the seeds from FIRST up to END.

The target of a seed is one of the known processors with one or two memory regions of random sizes; from seed ``THREE`` on, those with two
have PSRAM too, and those with several cores have up to six threads. The graphs and the checks are those
of ``tests.fuzz.targets``: each program is compared with LiteRT byte by byte, takes no more than its budget, and no more cycles than one
of a smaller budget. With several regions, the budget of each grows too.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from unittest import mock

import numpy as np

from openneutron import targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.driver import compile_prepared, prepared
from openneutron.errors import BudgetError, InvalidModelError
from openneutron.ir import Graph
from openneutron.targets import Target
from tests.fuzz import budgets
from tests.fuzz.targets import graph_of
from tests.support import oracle
from tests.support.chip_files import with_psram

KIB = (1, 2, 4, 8, 16, 24, 48, 96)
"""The sizes of a region that are drawn."""

GROWING = 5
"""The budgets of several regions that are drawn for a graph; all regions grow."""

THREE = 10000
"""The first seed of which processors with two memory regions get a third one, and those with several cores get threads."""


def target_of(seed: int) -> Target:
    """Return the target of a seed."""
    generator = random.Random(seed)
    known = targets.get(generator.choice(list(targets.CPUS)))
    known = with_psram(known) if seed >= THREE and len(known.regions) > 1 else known
    if seed >= THREE and known.threads is not None:
        known = targets.get(targets.in_threads(known.name, generator.choice((1, 2, 4, 6))))
    sized = {
        region: replace(region, size=replace(region.size, value=float(generator.choice(KIB))))
        for region in known.regions
    }
    return replace(known, memories=tuple(sized.get(memory, memory) for memory in known.memories))


def check(seed: int) -> int:
    """Compile and compare the graph of this seed on its target at several budgets; return the number of programs.

    0 where the graph is no valid model, or where it does not fit into the memory of the target. Raises AssertionError for any difference.
    """
    graph, target = graph_of(seed), target_of(seed)
    fetch, io = bool(seed % 2) and len(target.regions) == 1, ("arena", "caller")[seed // 2 % 2]
    drawn = np.random.default_rng(seed)
    with mock.patch.object(oracle, "TARGET", target):
        try:
            compile_graph(graph, target, CompileOptions(prefetch_constants=fetch, io_place=io))
        except InvalidModelError:
            return 0
        except BudgetError as error:
            assert error.least_bytes > min(region.size.value for region in target.regions) * 1024, (
                f"{graph.name}: {error}"
            )
            return 0
        programs = budgets.check_graph(graph, fetch, io, lambda a, b: [int(drawn.integers(a, b + 1))], seed)
        return programs + (check_regions(graph, target, io, drawn) if len(target.regions) > 1 else 0)


def check_regions(graph: Graph, target: Target, io: str, drawn: np.random.Generator) -> int:
    """Compile the graph for growing budgets of each region; return the number of programs.

    Raises AssertionError where a greater budget gives no program or a slower one.
    """
    most = {region.name: int(region.size.value * 1024) for region in target.regions}
    kept, cycles = prepared(graph, kept=True), []
    shares = np.sort(drawn.uniform(0, 1, (len(most), GROWING)) ** 3)
    for each in shares.T:
        sizes = {name: max(1, int(size * share)) for (name, size), share in zip(most.items(), each, strict=True)}
        try:
            compiled = compile_prepared(kept, target, CompileOptions(io_place=io, sram_budget=sizes, check=True))
        except BudgetError:
            assert not cycles, f"{graph.name}: no program with {sizes}"
            continue
        assert not compiled.report.faults, compiled.report.faults
        cycles.append(budgets.modelled(compiled))
        assert cycles[-1] == min(cycles), f"{graph.name}: slower with {sizes}"
    return len(cycles)


def main(first: int, end: int) -> int:
    """Check seeds [first, end), each in a process of its own, and print each failure and the sum. Return 1 where anything failed."""
    return budgets.sweep(first, end, check, graph_of)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
