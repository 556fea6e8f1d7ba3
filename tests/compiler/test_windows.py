# SPDX-License-Identifier: BSD-3-Clause
"""Attention window by window: LiteRT's bytes, and the memory of one window beside the image."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron.compiler import CompileOptions
from openneutron.compiler.driver import checked, finish
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.rewrite.call_list import CallList, edited
from openneutron.compiler.rewrite.divide import windows_apart
from openneutron.compiler.rewrite.passes import select_calls
from openneutron.compiler.schedule.schedule import whole_schedule
from openneutron.compiler.select.needs import in_place
from tests.support import oracle
from tests.support.attention_graphs import attention, block, windowed_block


@pytest.mark.parametrize("shift", [0, 1])
def test_calls_window_by_window_compute_the_same(shift: int) -> None:
    graph = windowed_block(shift, 2, 3, 2, 8, shift)
    legal = legalize(graph)
    storages, calls = select_calls(legal)
    found = edited(CallList(tuple(calls), storages), windows_apart)
    assert found is not None
    windows = [call for call in found.calls if call.traits.columns_apart]
    assert len(windows) == 4 and {call.views["output"].extents for call in windows} == {(1, 9, 2, 8)}
    own = in_place(found.storages, found.calls)
    compiled = checked(finish(graph, legal, own, whole_schedule(found.calls), oracle.TARGET, CompileOptions()))
    inputs = oracle.random_inputs(graph, shift)
    (got,), (want,) = oracle.simulated_outputs(compiled, inputs), oracle.reference_outputs(graph, inputs)
    np.testing.assert_array_equal(got, want)


def test_windows_need_no_copies() -> None:
    storages, calls = select_calls(windowed_block(0, 2, 3, 2, 8))
    found = edited(CallList(tuple(calls), storages), windows_apart)
    assert found is not None
    copies = [sum(call.kernel == "copy_s8" for call in each) for each in (calls, found.calls)]
    assert copies == [2, 0]


def test_one_window_is_in_memory_beside_the_image() -> None:
    """An image takes 4,608 B, its queries, keys and values three times as much; those of one of 9 windows take 1,536 B."""
    graph = windowed_block(3, 3, 4, 4, 8)
    image = 12 * 12 * 32
    least = oracle.least_budget(graph)
    assert least < 1.5 * image
    for budget in (least, 2 * image, 4 * image):
        oracle.assert_bit_exact(graph, (budget,), CompileOptions(sram_budget=budget))


@pytest.mark.parametrize("seed", range(4))
def test_shifted_windows_within_budgets_have_litert_s_bytes(seed: int) -> None:
    graph = windowed_block(seed, 2 + seed % 2, 2 + seed % 3, 2, 8, seed % 2)
    least = oracle.least_budget(graph)
    for budget in (least, 2 * least):
        oracle.assert_bit_exact(graph, (seed,), CompileOptions(sram_budget=budget))


def test_there_are_no_windows_without_layers_around_attention() -> None:
    for graph in (block(0, 1, 12, 2, 8), attention(2)):
        storages, calls = select_calls(graph)
        assert edited(CallList(tuple(calls), storages), windows_apart) is None
