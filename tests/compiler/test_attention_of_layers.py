# SPDX-License-Identifier: BSD-3-Clause
"""Attention of several batches and its layers in one call: LiteRT's bytes, the memory of one batch, and no fewer cycles than without a budget."""

from __future__ import annotations

import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.cost.cycles import call_cost
from tests.support import oracle
from tests.support.attention_graphs import block
from tests.support.random_budgets import cycles_at_budgets

KERNEL = "conv_2d_1x1_parts_attention_s8"


@pytest.mark.without_tiles("groups of heads are lists of the search for cascades, which tiles do not use")
@pytest.mark.parametrize(("batches", "tokens", "heads"), [(4, 6, 2), (3, 9, 4)])
def test_groups_of_heads_within_a_budget(batches: int, tokens: int, heads: int) -> None:
    graph = block(6, batches, tokens, heads, 8)
    whole = compile_graph(graph, oracle.TARGET).report
    options = CompileOptions(sram_budget=whole.sram_bytes * 6 // 10, check=True)
    report = oracle.assert_bit_exact(graph, (0, 1), options).report
    assert [call.kernel for call in report.operators].count(KERNEL) == 2
    assert whole.cycles <= report.cycles < 1.25 * whole.cycles
    # Scratch for one batch of half of the heads.
    assert (
        max(each.size_bytes for each in report.memory if "layers" in each.name)
        == -(-tokens * 3 * heads // 2 * 8 // 16) * 16
    )


def test_more_memory_is_never_slower() -> None:
    for seed in range(3):
        graph = block(seed, 4, 6, 2, 8)
        unlimited = compile_graph(graph, oracle.TARGET).report
        least = oracle.least_budget(graph)
        cycles = cycles_at_budgets(graph, CompileOptions(), least, unlimited.sram_bytes, seed)
        assert cycles == sorted(cycles, reverse=True)
        assert cycles[-1] == unlimited.cycles


@pytest.mark.without_tiles("groups of heads are lists of the search for cascades, which tiles do not use")
def test_the_cost_is_that_of_both_parts_with_one_dispatch() -> None:
    graph = block(6, 4, 6, 2, 8)
    budget = compile_graph(graph, oracle.TARGET).report.sram_bytes * 6 // 10
    made = compile_graph(graph, oracle.TARGET, CompileOptions(sram_budget=budget))
    call = next(call for call in made.schedule.calls if call.kernel == KERNEL)
    layers, attention = (call_cost(part, oracle.TARGET) for part in call.parts)
    cost = call_cost(call, oracle.TARGET)
    assert cost.compute_cycles == layers.compute_cycles + attention.compute_cycles
    assert cost.issue_cycles == layers.issue_cycles
