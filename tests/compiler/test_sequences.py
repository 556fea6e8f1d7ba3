# SPDX-License-Identifier: BSD-3-Clause
"""Calls over one row by rows: LiteRT's bytes, the same modelled cycles, and a small part of the memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from openneutron.compiler import CompileOptions
from openneutron.compiler.cost.cycles import call_cost
from openneutron.compiler.driver import checked, finish
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.rewrite.call_list import CallList, edited
from openneutron.compiler.rewrite.passes import select_calls
from openneutron.compiler.rewrite.shapes import apart, by_rows, is_sequence, turned
from openneutron.compiler.schedule.schedule import whole_schedule
from openneutron.compiler.select.calls import KernelCall, Storages
from scripts.published_networks import cifarnet
from tests.support import oracle, random_graphs, random_layers
from tests.support.oracle import least_budget
from tests.support.random_budgets import cycles_at_budgets
from tests.support.random_images import convolution, sequence_graph


def turned_calls(calls: Sequence[KernelCall], storages: Storages) -> tuple[KernelCall, ...]:
    made = edited(CallList(tuple(calls), storages), by_rows)
    assert made is not None
    return made.calls


@pytest.mark.parametrize("seed", range(24))
def test_every_call_computes_the_same_by_rows(seed: int) -> None:
    graph = sequence_graph(seed)
    legal = legalize(graph)
    storages, calls = select_calls(legal)
    rows = turned_calls(calls, storages)
    schedule = whole_schedule(rows)
    compiled = checked(finish(graph, legal, storages, schedule, oracle.TARGET, CompileOptions()))
    inputs = oracle.random_inputs(graph, seed)
    want = oracle.reference_outputs(graph, inputs)
    for got, expected in zip(oracle.simulated_outputs(compiled, inputs), want, strict=True):
        np.testing.assert_array_equal(got, expected, f"{graph}")
    for call, turned_call in zip(calls, rows, strict=True):
        costs = [call_cost(each, oracle.TARGET) for each in (call, turned_call)]
        assert costs[0] == costs[1]
        if is_sequence(call):
            assert turned(turned_call) == call


@pytest.mark.parametrize("seed", range(100, 120))
def test_random_sequences_at_random_budgets(seed: int) -> None:
    graph = sequence_graph(seed)
    io, fetch = ("arena", "caller")[seed % 2], seed % 5 == 0
    options = CompileOptions(io_place=io, prefetch_constants=fetch)
    unlimited = oracle.assert_bit_exact(graph, (), options).report
    least = least_budget(graph, fetch, io)
    cycles = cycles_at_budgets(graph, options, least, unlimited.sram_bytes, seed)
    # A cascade may have been reckoned to take some bytes more than it does.
    cycles.append(unlimited.overlapped_cycles)
    assert cycles == sorted(cycles, reverse=True)


def test_a_kernel_of_several_rows_on_one_row_is_turned_with_its_weights() -> None:
    b = random_graphs.Builder(5)
    source = b.input((1, 1, 12, 5))
    attrs = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "activation": "NONE"}
    operands = random_layers.weights_and_bias(b, (10, 3, 5, 5), 0, source, 75, always_bias=True)
    graph = b.graph([b.node("conv_2d", [source, *operands], b.new((1, 1, 12, 10)), **attrs)])
    legal = legalize(graph)
    storages, calls = select_calls(legal)
    (call,) = turned_calls(calls, storages)
    assert (call.params["kernel_h"], call.params["kernel_w"]) == (5, 3)
    assert call.constants["weights"].shape == (10, 5, 3, 5)
    compiled = finish(graph, legal, storages, whole_schedule([call]), oracle.TARGET, CompileOptions())
    inputs = oracle.random_inputs(graph, 0)
    (got,), (want,) = oracle.simulated_outputs(compiled, inputs), oracle.reference_outputs(graph, inputs)
    np.testing.assert_array_equal(got, want)


@pytest.mark.without_tiles("the memory of the NPU has constants too")
def test_a_long_sequence_takes_little_more_than_its_ends() -> None:
    """Input and output are 3 KiB, what lies between 16 KiB a tensor."""
    b = random_graphs.Builder(3)
    value = source = b.input((1, 1, 512, 2))
    for filters, kernel in ((32, 5), (32, 3), (4, 3)):
        value = convolution(b, value, filters, (1, kernel))
    graph = b.graph([value])
    assert oracle.assert_bit_exact(graph, (0,)).report.arena_bytes == 32 * 1024
    least = least_budget(graph, False, "arena")
    assert 1 < least <= value.elements + source.elements + 512
    assert oracle.assert_bit_exact(graph, (0,), CompileOptions(sram_budget=least)).report.sram_bytes == least


def test_images_have_no_sequences() -> None:
    """A fully connected layer at the end has one row of one column; it is left alone, and so is the list of calls."""
    storages, calls = select_calls(legalize(cifarnet()))
    assert not any(map(is_sequence, calls))
    assert edited(CallList(tuple(calls), storages), by_rows) is None
    assert apart(CallList(tuple(calls), storages))


@pytest.mark.parametrize("channels", [1, 5, 8, 10, 24])
def test_stripes_of_a_sequence_never_cost_less_than_the_whole(channels: int) -> None:
    """Else less memory could be faster: a stripe may have other things on the pipelines than the whole."""
    b = random_graphs.Builder(1)
    graph = b.graph([convolution(b, b.input((1, 1, 37, 16)), channels, (1, 5))])
    storages, calls = select_calls(legalize(graph))
    (call,) = turned_calls(calls, storages)
    whole = call_cost(call, oracle.TARGET).compute_cycles
    assert whole == call_cost(calls[0], oracle.TARGET).compute_cycles
    for height in range(1, 38):
        stripes = [min(height, 37 - first) for first in range(0, 37, height)]
        assert sum(call_cost(call, oracle.TARGET, rows).compute_cycles for rows in stripes) >= whole
