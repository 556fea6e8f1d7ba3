# SPDX-License-Identifier: BSD-3-Clause
"""Random graphs on random targets: ``python -m tests.fuzz.targets FIRST END`` goes through the seeds from FIRST up to END.

The target of a seed has 2 to 32 pipelines of 2 to 32 multipliers, one to four cores, one to three memories of constants with and
without a path to the NPU, copy engines that work at once or in the background, and costs of its own. Every fourth target
computes a graph of int16 activations, the others one of int8. Each graph of 3 to 16 operators is compiled for the memory of the
target, for the least budget and for one between; with and without copies of constants, with inputs and outputs in the arena and
with the caller. Each program goes through the compiler's check and is compared with LiteRT byte by byte; it takes no more than its
budget, and no more cycles than one of a smaller budget.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np

from openneutron.errors import BudgetError, InvalidModelError
from openneutron.ir import Graph
from openneutron.targets import Target
from tests.fuzz import budgets
from tests.support import oracle, random_chips, random_graphs, random_wide

MOST_OPERATORS = 16


def is_int16(seed: int) -> bool:
    """Return whether the graph of this seed has int16 activations."""
    return seed % 4 == 3


def graph_of(seed: int) -> Graph:
    """Return the graph of a seed."""
    return (random_wide if is_int16(seed) else random_graphs).several(50_000 + seed, 3, MOST_OPERATORS)


def target_of(seed: int) -> Target:
    """Return the target of a seed."""
    with tempfile.TemporaryDirectory() as folder:
        return random_chips.drawn(Path(folder), seed, is_int16(seed))


def check(seed: int) -> int:
    """Compile and compare the graph of this seed on its target at several budgets; return the number of programs.

    0 where the graph is no valid model (a scale that LiteRT refuses), or where it does not fit into the memory of the target. Raises
    AssertionError for any difference.
    """
    graph, target = graph_of(seed), target_of(seed)
    fetch, io = bool(seed % 2), ("arena", "caller")[seed // 2 % 2]
    random = np.random.default_rng(seed)
    with mock.patch.object(oracle, "TARGET", target):
        try:
            return budgets.check_graph(graph, fetch, io, lambda a, b: [int(random.integers(a, b + 1))], seed)
        except InvalidModelError:
            return 0
        except BudgetError as error:
            assert error.least_bytes > target.sram.value * 1024, f"{graph.name}: {error}"
            assert oracle.least_budget(graph, fetch, io) == error.least_bytes, f"{graph.name}: {error}"
            return 0


def main(first: int, end: int) -> int:
    """Check seeds [first, end), each in a process of its own, and print each failure and the sum. Return 1 where anything failed."""
    return budgets.sweep(first, end, check, graph_of)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
