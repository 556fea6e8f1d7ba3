# SPDX-License-Identifier: BSD-3-Clause
"""Layers with the batches and rows of the attention that they stand beside, and budgets that this makes feasible."""

from __future__ import annotations

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.rewrite.call_list import CallList, edited
from openneutron.compiler.rewrite.passes import select_calls
from openneutron.compiler.rewrite.shapes import goes_by_position, with_rows_of_neighbours
from tests.support import oracle
from tests.support.attention_graphs import block


def test_linear_layers_have_the_rows_of_attention() -> None:
    storages, calls = select_calls(block(0, 4, 6, 2, 8))
    assert {call.views["output"].extents[:3] for call in calls if goes_by_position(call)} == {(1, 1, 24), (1, 4, 6)}
    made = edited(CallList(tuple(calls), storages), with_rows_of_neighbours)
    stated = made.calls if made else ()
    assert {call.views["output"].extents[:3] for call in stated if goes_by_position(call)} == {(4, 6, 1)}
    assert [call.kernel for call in stated] == [call.kernel for call in calls]


def test_batches_of_attention_are_computed_one_after_the_other() -> None:
    graph = block(1, 4, 16, 2, 8)
    whole = compile_graph(graph, oracle.TARGET).report.sram_bytes
    least = oracle.least_budget(graph)
    assert least < 0.6 * whole
    for budget in (least, (least + whole) // 2):
        oracle.assert_bit_exact(graph, (0,), CompileOptions(sram_budget=budget))


def test_queries_are_computed_with_the_rows_of_their_attention() -> None:
    """The scores and queries of all tokens are never in memory, so that the keys and values are the most of it."""
    graph = block(2, 1, 64, 1, 16)
    whole, tensor = compile_graph(graph, oracle.TARGET).report.sram_bytes, 64 * 16
    assert whole >= 6 * tensor
    least = oracle.least_budget(graph)
    assert least < 3.6 * tensor
    for budget in (least, whole - 1):
        oracle.assert_bit_exact(graph, (0,), CompileOptions(sram_budget=budget))
