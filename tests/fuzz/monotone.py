# SPDX-License-Identifier: BSD-3-Clause
"""Random graphs at many budgets: ``python -m tests.fuzz.monotone FIRST END [CHIP]`` goes through the seeds from FIRST up to END.

Half of the graphs take few rows from tall inputs, the others have any operators. Each graph is scheduled for up to ``COUNT`` budgets between its
least budget and twice its free arena. Whatever is feasible in one budget is feasible in each larger one. It takes no more cycles there and
copies no more bytes, on a Neutron-S where the compiler promises this. The least budget that an error names is true: it is feasible, the budget below it is
not, and each error of the graph names the same. One program of each graph goes through the compiler's check and is compared with LiteRT.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial

import numpy as np

from openneutron import targets
from openneutron.compiler import CompileOptions
from openneutron.compiler.driver import Prepared, compile_prepared, prepared
from openneutron.compiler.search.fit import within_budget
from openneutron.compiler.search.fitted import Fitted
from openneutron.compiler.search.tuning import TUNING
from openneutron.errors import BudgetError, InvalidModelError
from openneutron.ir import Graph
from openneutron.isa.rows import ALIGNMENT
from tests.fuzz import budgets
from tests.support import oracle, random_few_rows, random_graphs

COUNT = 12
"""The budgets of a graph between its least and twice its free arena; a third of them where each takes a search of its own."""

MOST_OPERATORS = (6, 6, 6, 18)


def graph_of(seed: int) -> Graph:
    """Return the graph of a seed."""
    if seed % 2:
        return random_graphs.several(120_000 + seed, 2, MOST_OPERATORS[seed // 2 % 4])
    return random_few_rows.graph_of(seed)


def check(seed: int, chip: str = "imx95") -> int:
    """Schedule the graph of this seed for all budgets and compile it for one; return the number of budgets.

    0 where the graph is no valid model (a scale that LiteRT refuses) or larger than the chip's memory.
    """
    graph, target = graph_of(seed), targets.get(chip)
    options = CompileOptions(
        prefetch_constants=not target.moves_tiles and seed % 4 > 1, io_place=("arena", "caller")[seed // 4 % 2]
    )
    try:
        made = prepared(graph, kept=True)
        free = _fitted(made, target, options)
    except (InvalidModelError, BudgetError):
        return 0
    least = _least(made, target, options, 1)
    most = int(target.sram.value * 1024)
    ends = max(1, least), min(most, max(2 * free.sram_bytes, 2 * least))
    random, count = np.random.default_rng(seed), COUNT if _is_promised(free, target) else COUNT // 3
    drawn = np.exp(random.uniform(*np.log(np.array(ends, float)), count)).astype(int)
    rising = sorted({*ends, *(int(size) for size in drawn if size >= least), most})
    before: dict[str, int] = {}
    for budget in rising:
        fitted = _fitted(made, target, replace(options, sram_budget=budget))
        assert fitted.sram_bytes <= budget, f"{fitted.sram_bytes} of {budget} bytes"
        now = {"budget": budget, "cycles": fitted.cycles(target), "moved": _moved_bytes(fitted)}
        if before and _is_promised(fitted, target):
            assert now["cycles"] <= before["cycles"] and now["moved"] <= before["moved"], f"{now} behind {before}"
        before = now
    step = ALIGNMENT if target.moves_tiles else 1
    for below in {least - step, *(int(size) for size in random.uniform(1, least, 2))}:
        if 0 < below < least:
            named = _least(made, target, options, below)
            assert named == least, f"{least} bytes are the least once, {named} with {below}"
    budget = int(random.choice(rising))
    compiled = compile_prepared(made, target, replace(options, sram_budget=budget, check=True))
    given = oracle.random_inputs(graph, seed)
    results = oracle.simulated_outputs(compiled, given)
    for result, wanted in zip(results, oracle.reference_outputs(graph, given), strict=True):
        np.testing.assert_array_equal(result, wanted, f"{budget} bytes")
    return len(rising)


def _fitted(made: Prepared, target: targets.Target, options: CompileOptions) -> Fitted:
    return within_budget(made.graph, made.tasks, target, options)


def _least(made: Prepared, target: targets.Target, options: CompileOptions, below: int) -> int:
    """Return the least budget that the error for a budget names, or 1 where that budget is feasible."""
    try:
        _fitted(made, target, replace(options, sram_budget=below))
    except BudgetError as error:
        return error.least_bytes
    return 1


def _moved_bytes(fitted: Fitted) -> int:
    return sum(call.views["output"].distinct_bytes for call in fitted.schedule.calls if call.is_transfer)


def _is_promised(fitted: Fitted, target: targets.Target) -> bool:
    """Return whether the compiler searches each smaller memory too; the calls of a program are never fewer than those that it counts."""
    return not target.moves_tiles or sum(not call.is_transfer for call in fitted.schedule.calls) <= TUNING.few_calls


def main(first: int, end: int, chip: str = "imx95") -> int:
    """Check seeds [first, end), each in a process of its own, and print each failure and the sum. Return 1 where anything failed."""
    return budgets.sweep(first, end, partial(check, chip=chip), graph_of)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
