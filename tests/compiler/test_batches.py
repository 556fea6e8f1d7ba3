# SPDX-License-Identifier: BSD-3-Clause
"""Batches one after the other: LiteRT's bytes, the memory of one batch beside inputs and outputs, and only where memory asks for it."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.driver import checked, finish
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.rewrite.call_list import CallList, edited
from openneutron.compiler.rewrite.divide import batch_by_batch
from openneutron.compiler.rewrite.passes import select_calls
from openneutron.compiler.schedule.schedule import Whole, whole_schedule
from openneutron.compiler.select.needs import in_place
from openneutron.ir import Graph, Tensor
from tests.support import oracle, random_graphs
from tests.support.oracle import least_budget
from tests.support.random_budgets import cycles_at_budgets
from tests.support.random_images import batched_graph, convolution


@pytest.mark.parametrize(
    ("seed", "batches", "groups"),
    [*((seed, 2 + seed % 3, 0) for seed in range(20)), *((seed, 4, 2) for seed in range(6))],
)
def test_calls_batch_by_batch_compute_the_same(seed: int, batches: int, groups: int) -> None:
    graph = batched_graph(seed, batches)
    legal = legalize(graph)
    storages, calls = select_calls(legal)
    found = edited(CallList(tuple(calls), in_place(storages, calls)), batch_by_batch, groups)
    if found is None:
        return
    assert 0 in found.cuts and len(found.calls) > len(calls)
    schedule = whole_schedule(found.calls)
    compiled = checked(finish(graph, legal, found.storages, schedule, oracle.TARGET, CompileOptions()))
    inputs = oracle.random_inputs(graph, seed)
    want = oracle.reference_outputs(graph, inputs)
    for got, expected in zip(oracle.simulated_outputs(compiled, inputs), want, strict=True):
        np.testing.assert_array_equal(got, expected, f"{graph}")


def test_most_graphs_of_several_batches_can_go_batch_by_batch() -> None:
    found = 0
    for seed in range(20):
        storages, calls = select_calls(legalize(batched_graph(seed, 2 + seed % 3)))
        found += edited(CallList(tuple(calls), in_place(storages, calls)), batch_by_batch) is not None
        storages, calls = select_calls(legalize(batched_graph(seed, 1)))
    assert found >= 10


@pytest.mark.parametrize("seed", range(100, 116))
def test_random_batches_at_random_budgets(seed: int) -> None:
    graph = batched_graph(seed, 2 + seed % 3)
    io, fetch = ("arena", "caller")[seed % 2], seed % 4 == 0
    options = CompileOptions(io_place=io, prefetch_constants=fetch)
    compiled = oracle.assert_bit_exact(graph, (), options)
    unlimited, least = compiled.report, least_budget(graph, fetch, io)
    cycles = cycles_at_budgets(graph, options, least, unlimited.sram_bytes, seed)
    if oracle.is_never_slower_with_more(compiled):
        assert cycles == sorted(cycles, reverse=True)
        assert cycles[-1] == unlimited.overlapped_cycles


def images(batches: int, channels: int = 3) -> Graph:
    b = random_graphs.Builder(3)
    value: Tensor = b.input((batches, 16, 12, channels))
    for filters, kernel in ((16, 3), (16, 3), (4, 1)):
        value = convolution(b, value, filters, (kernel, kernel))
    return b.graph([b.node("mean", [value, b.integers(1, 2)], b.new((batches, 4)), keep_dims=False)])


@pytest.mark.parametrize("batches", [2, 4, 8])
def test_several_batches_take_what_one_takes_beside_inputs_and_outputs(batches: int) -> None:
    one, several = least_budget(images(1), False, "caller"), least_budget(images(batches), False, "caller")
    border = 16 * 12 * 3 + 4
    # The calls' own alignment, and the channels of the last image that nobody has averaged yet.
    assert several <= one + (batches - 1) * border + 64 * batches
    compiled = oracle.assert_bit_exact(images(batches), (0,), CompileOptions(sram_budget=several, io_place="caller"))
    assert compiled.report.sram_bytes <= several


@pytest.mark.without_tiles("loads and stores of tiles are calls too")
def test_batches_stay_together_where_memory_allows() -> None:
    graph = images(4, 8)
    whole = compile_graph(graph, oracle.TARGET)
    assert len(whole.schedule.calls) == 4 and all(isinstance(step, Whole) for step in whole.schedule.steps)
    less = compile_graph(graph, oracle.TARGET, CompileOptions(sram_budget=whole.report.sram_bytes - 1))
    assert len(less.schedule.calls) == 16
    assert [call.name.rsplit("/", 1)[1] for call in less.schedule.calls] == [str(i // 4) for i in range(16)]


def test_one_batch_has_nothing_to_cut() -> None:
    storages, calls = select_calls(legalize(images(1)))
    assert edited(CallList(tuple(calls), in_place(storages, calls)), batch_by_batch) is None
