# SPDX-License-Identifier: BSD-3-Clause
"""Calls that are computed again for each reader, so that only rows of their result are in memory."""

from __future__ import annotations

from openneutron.compiler import CompileOptions
from openneutron.compiler.rewrite.call_list import CallList, edited
from openneutron.compiler.rewrite.divide import heads_apart
from openneutron.compiler.rewrite.join import computed_again
from openneutron.compiler.rewrite.passes import select_calls
from tests.support import oracle
from tests.support.attention_graphs import block


def test_a_normalization_is_computed_for_keys_and_values_and_for_queries() -> None:
    storages, calls = select_calls(block(0, 1, 12, 2, 8, joined=True, normalized=True))
    cut = edited(CallList(tuple(calls), storages), heads_apart, False)
    assert cut is not None
    made = edited(cut, computed_again)
    assert made is not None
    kernels = [call.kernel for call in made.calls][:6]
    norm, layer = "l2_normalization_s8", "conv_2d_1x1_s8"
    assert kernels == [norm, layer, layer, norm, layer, "attention_s8"]
    assert [call.views["input"].tensor for call in made.calls[1:5:3]] == [
        call.views["output"].tensor for call in made.calls[0:4:3]
    ]


def test_nothing_is_computed_again_where_the_input_ends() -> None:
    storages, calls = select_calls(block(0, 1, 12, 2, 8))
    cut = edited(CallList(tuple(calls), storages), heads_apart, True)
    assert cut is not None and edited(cut, computed_again) is None
    assert edited(CallList(tuple(calls), storages), computed_again) is None


def test_budgets_without_the_result_of_a_normalization() -> None:
    """Beside the input, the attention's result and the keys and values of one head of four there are rows alone."""
    graph = block(7, 1, 64, 4, 8, joined=True, normalized=True)
    least = oracle.least_budget(graph)
    assert least < 2.8 * 64 * 32
    for budget in (least, 3 * 64 * 32):
        oracle.assert_bit_exact(graph, (0,), CompileOptions(sram_budget=budget))
