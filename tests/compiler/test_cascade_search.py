# SPDX-License-Identifier: BSD-3-Clause
"""Schedules for a budget: LiteRT's bytes whatever the budget, never above it, never slower for more, and the least is named."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest

from openneutron import targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.driver import compile_prepared, prepared
from openneutron.compiler.schedule.schedule import Loop, Rows
from openneutron.compiler.search.cascade.stripes import compressed
from openneutron.compiler.select import needs
from openneutron.errors import BudgetError
from tests.support import oracle
from tests.support.oracle import least_budget
from tests.support.random_budgets import cycles_at_budgets
from tests.support.random_images import image_graph


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_at_random_budgets(seed: int) -> None:
    graph = image_graph(seed)
    io = ("arena", "caller")[seed % 2]
    fetch = seed % 5 == 0
    options = CompileOptions(io_place=io, prefetch_constants=fetch)
    unlimited = compile_graph(graph, oracle.TARGET, options).report
    with pytest.raises(BudgetError) as caught:
        compile_graph(graph, oracle.TARGET, replace(options, sram_budget=1))
    least = caught.value.least_bytes
    below = oracle.infeasible_budget(least)
    # A search for tiles names a size of a list, of which its schedule may leave some bytes free.
    assert (below if oracle.TARGET.moves_tiles else least) <= unlimited.sram_bytes
    with pytest.raises(BudgetError) as again:
        compile_graph(graph, oracle.TARGET, replace(options, sram_budget=below))
    assert again.value.least_bytes == least or (oracle.TARGET.moves_tiles and again.value.least_bytes > below)
    cycles = cycles_at_budgets(graph, options, least, max(least, unlimited.sram_bytes), seed, count=3)
    assert cycles == sorted(cycles, reverse=True)
    # A search for tiles tries sizes of memory up to the budget, which may be more than the schedule takes.
    fastest = unlimited.overlapped_cycles
    assert cycles[-1] == fastest or (oracle.TARGET.moves_tiles and cycles[-1] > fastest)


def test_a_search_leaves_nothing_to_the_garbage_collector() -> None:
    """Its values are tens of thousands, which the next collections would go through."""
    graph = image_graph(1)
    gc.collect()
    compile_graph(graph, targets.get("imxrt700"))
    assert gc.collect() == 0


def test_cascades_are_what_makes_a_network_fit() -> None:
    """Of the graphs above most get smaller than whole tensors allow, and rings, loops and overlaps all take part."""
    seen = {"smaller": 0, "rings": 0, "loops": 0, "overlaps": 0}
    for seed in range(40):
        graph = image_graph(seed)
        kept = prepared(graph, kept=True)
        least = least_budget(graph, given=kept)
        compiled = compile_prepared(kept, oracle.TARGET, CompileOptions(sram_budget=least))
        seen["smaller"] += least < compile_prepared(kept, oracle.TARGET).report.sram_bytes
        seen["rings"] += bool(compiled.schedule.rings)
        seen["loops"] += any(isinstance(step, Loop) for step in compiled.schedule.steps)
        seen["overlaps"] += bool(compiled.schedule.overlaps)
    assert min(seen.values()) >= 5, seen


@pytest.mark.parametrize(
    ("rows", "stride", "before", "extent"), [(9, 1, 1, 3), (8, 2, 0, 3), (7, 3, 2, 4), (5, 1, 0, 1)]
)
def test_needs_from_the_last_rows_on_are_the_same_needs(rows: int, stride: int, before: int, extent: int) -> None:
    taken = [range(max(0, r * stride - before), min(rows, r * stride - before + extent)) for r in range(rows // stride)]
    low = tuple(min(min(each) for each in taken[r:]) for r in range(len(taken)))
    high = tuple(max(max(each) + 1 for each in taken[:r]) for r in range(1, len(taken) + 1))
    made = needs.RowNeeds((*low, needs.NEVER), (0, *high))
    turned = made.mirrored(rows)
    assert turned.mirrored(rows) == made
    for row, each in enumerate(reversed(taken)):
        assert turned.low[row] <= rows - 1 - max(each)
        assert turned.high[row + 1] >= rows - min(each)


@pytest.mark.parametrize("seed", range(20))
def test_loops_run_the_same_stripes_in_the_same_order(seed: int) -> None:
    generator = np.random.default_rng(seed)
    starts = [0, 0, 0]
    rounds = []
    for index in range(int(generator.integers(1, 30))):
        stripes = []
        for call in range(3):
            height = int((2, 1, index % 2)[call] if generator.random() < 0.9 else generator.integers(0, 4))
            if height:
                stripes.append(Rows(call, starts[call], starts[call] + height))
                starts[call] += height
        rounds.append(tuple(stripes))
    ran = []
    for step in compressed(rounds):
        if isinstance(step, Loop):
            ran += [
                Rows(part.call, part.row0 + i * part.step, part.row1 + i * part.step)
                for i in range(step.count)
                for part in step.body
                if isinstance(part, Rows)
            ]
        else:
            ran.append(step)
    assert ran == [stripe for stripes in rounds for stripe in stripes]
