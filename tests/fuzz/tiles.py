# SPDX-License-Identifier: BSD-3-Clause
"""Random graphs in tiles: ``python -m tests.fuzz.tiles FIRST END`` goes through the seeds from FIRST up to END.

Each graph of 3 to 16 operators, of int16 activations for odd seeds, is compiled for a Neutron-S with three sizes of memory between 2 and
128 KiB. Each program goes through the compiler's check and is compared with LiteRT byte by byte. It takes no more than its budget, and copies
no fewer bytes than the lower bound. A larger memory neither takes longer nor moves more bytes, in graphs that the compiler promises this for.
"""

from __future__ import annotations

import sys

import numpy as np

from bench.live_traffic import least_reloaded_bytes
from openneutron import targets
from openneutron.compiler import Compiled, CompileOptions, compile_graph
from openneutron.compiler.driver import prepared
from openneutron.compiler.search.tuning import TUNING
from openneutron.errors import BudgetError, InvalidModelError
from openneutron.ir import Graph
from tests.fuzz import budgets
from tests.support import oracle, random_graphs, random_wide

MOST_OPERATORS = 16
LEAST_BYTES, MOST_BYTES = 2 << 10, 128 << 10


def graph_of(seed: int) -> Graph:
    """Return the graph of a seed."""
    return (random_wide if seed % 2 else random_graphs).several(80_000 + seed, 3, MOST_OPERATORS)


def sizes_of(seed: int) -> list[int]:
    """Return the memories of a seed, in bytes and ascending."""
    ends = np.log2([LEAST_BYTES, MOST_BYTES])
    return sorted(int(2**power) for power in np.random.default_rng(seed).uniform(*ends, 3))


def check(seed: int) -> int:
    """Compile and compare the graph of this seed for its memories; return the number of programs.

    0 where the graph is no valid model (a scale that LiteRT refuses), or fits no memory. Raises AssertionError for any difference.
    """
    graph = graph_of(seed)
    given = oracle.random_inputs(graph, seed)
    before: Compiled | None = None
    sizes, count = sizes_of(seed), 0
    try:
        storages, calls = prepared(graph).tasks.selected[0]
    except InvalidModelError:
        return 0
    reloaded = dict(zip(sizes, least_reloaded_bytes(calls, storages, sizes), strict=True))
    for size in sizes:
        try:
            options = CompileOptions(target="imx95", sram_budget=size, check=True)
            made = compile_graph(graph, targets.get("imx95"), options)
        except InvalidModelError:
            return 0
        except BudgetError as error:
            assert before is None or not _is_promised(before), f"{graph.name}: {size} bytes do not do: {error}"
            continue
        results = oracle.simulated_outputs(made, given)
        for result, wanted in zip(results, oracle.reference_outputs(graph, given), strict=True):
            np.testing.assert_array_equal(result, wanted, f"{graph.name} in {size} bytes")
        report = made.report
        assert not report.faults, f"{graph.name} in {size} bytes: {report.faults}"
        assert report.sram_bytes <= size, f"{graph.name}: {report.sram_bytes} of {size} bytes"
        least = report.traffic_bound_bytes + reloaded[size]
        assert least <= report.moved_bytes + report.fetched_bytes, f"{graph.name} in {size} bytes"
        if before is not None and _is_promised(made):
            assert report.cycles <= before.report.cycles, f"{graph.name}: slower with {size} bytes"
            assert report.moved_bytes <= before.report.moved_bytes, f"{graph.name}: more bytes moved with {size}"
        before, count = made, count + 1
    return count


def _is_promised(made: Compiled) -> bool:
    """Return whether the compiler searches each smaller memory too; the calls of a program are never fewer than those that it counts."""
    return sum(not call.is_transfer for call in made.schedule.calls) <= TUNING.few_calls


def main(first: int, end: int) -> int:
    """Check seeds [first, end), each in a process of its own, and print each failure and the sum. Return 1 where anything failed."""
    return budgets.sweep(first, end, check, graph_of)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
