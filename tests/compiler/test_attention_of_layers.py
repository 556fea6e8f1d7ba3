# SPDX-License-Identifier: BSD-3-Clause
"""Attention of several batches and its layers in one call: LiteRT's bytes, the memory of one batch, and no fewer cycles than without a budget."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.cost.cycles import call_cost
from openneutron.compiler.driver import checked, finish
from openneutron.compiler.graph.legalize import legalize
from openneutron.compiler.schedule.batches import batch_by_batch
from openneutron.compiler.schedule.needs import in_place
from openneutron.compiler.schedule.schedule import whole_schedule
from openneutron.compiler.select.select import select_calls
from tests.support import oracle
from tests.support.attention_graphs import block
from tests.support.random_budgets import cycles_at_budgets
from tests.support.random_images import batched_graph

KERNEL = "conv_2d_1x1_parts_attention_s8"


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


def test_the_cost_is_that_of_both_parts_with_one_dispatch() -> None:
    graph = block(6, 4, 6, 2, 8)
    budget = compile_graph(graph, oracle.TARGET).report.sram_bytes * 6 // 10
    made = compile_graph(graph, oracle.TARGET, CompileOptions(sram_budget=budget))
    call = next(call for call in made.schedule.calls if call.kernel == KERNEL)
    layers, attention = (call_cost(part, oracle.TARGET) for part in call.parts)
    cost = call_cost(call, oracle.TARGET)
    assert cost.compute_cycles == layers.compute_cycles + attention.compute_cycles
    assert cost.issue_cycles == layers.issue_cycles


@pytest.mark.parametrize("seed", range(6))
def test_batches_in_two_groups(seed: int) -> None:
    """Each group has half of the batches of every call, with the bytes of all batches together."""
    graph = batched_graph(seed, 4)
    legal = legalize(graph)
    storages, calls = select_calls(legal)
    found = batch_by_batch(calls, in_place(storages, calls), 2)
    if found is None:
        return
    schedule = whole_schedule(found.calls)
    compiled = checked(finish(graph, legal, found.storages, schedule, oracle.TARGET, CompileOptions()))
    inputs = oracle.random_inputs(graph, seed)
    want = oracle.reference_outputs(graph, inputs)
    for got, expected in zip(oracle.simulated_outputs(compiled, inputs), want, strict=True):
        np.testing.assert_array_equal(got, expected, f"{graph}")
