# SPDX-License-Identifier: BSD-3-Clause
"""Orders of calls: as few bytes as any order has, the graph's own where it is as good, LiteRT's bytes, and faster within a budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.rewrite.call_list import CallList
from openneutron.compiler.rewrite.order import (
    MOST_CALLS,
    Flow,
    bits,
    flow_of,
    order_of_least_peak,
    order_of_least_sum,
    stays,
)
from openneutron.compiler.rewrite.passes import ALL, for_cascades, select_calls
from openneutron.compiler.search.fit import Task
from openneutron.compiler.select.calls import KernelCall, Storages
from openneutron.compiler.select.needs import in_place
from openneutron.errors import BudgetError
from openneutron.ir import Graph, Node
from openneutron.options import ARENA, CALLER
from scripts.published_networks import cifarnet
from tests.support import oracle, random_graphs
from tests.support.random_images import convolution

SEEDS = range(60)


def calls_of(graph: Graph) -> tuple[list[KernelCall], Storages]:
    storages, calls = select_calls(legalize(graph))
    return calls, in_place(storages, calls)


def flow_from(seed: int) -> Flow:
    """Of a graph of 3 to 12 operators; inputs and outputs lie with the caller for every other seed."""
    return flow_of(*calls_of(random_graphs.several(seed, 3, 12)), (ARENA, CALLER)[seed % 2])


def every_order(flow: Flow, order: Sequence[int] = (), done: int = 0) -> list[tuple[int, ...]]:
    if len(order) == len(flow.before):
        return [tuple(order)]
    ready = (call for call, needed in enumerate(flow.before) if not done >> call & 1 and not needed & ~done)
    return [each for call in ready for each in every_order(flow, (*order, call), done | 1 << call)]


def sum_of_bytes(flow: Flow, order: Sequence[int]) -> int:
    live, done, total = flow.at_start, 0, 0
    for call in order:
        here, live = flow.step(done, call, live)
        total, done = total + here, done | 1 << call
    return total


def test_no_order_of_a_small_graph_has_a_lower_peak_or_sum() -> None:
    tried = better = 0
    for seed in SEEDS:
        flow = flow_from(seed)
        if len(flow.before) > 8:
            continue
        orders = every_order(flow)
        peaks = [flow.peak_bytes(order) for order in orders]
        found = order_of_least_peak(flow)
        given = tuple(range(len(flow.before)))
        assert flow.least_bytes() <= min(peaks) == flow.peak_bytes(found)
        assert found == given or flow.peak_bytes(found) < flow.peak_bytes(given)
        assert stays(flow) == (len(orders) == 1)
        closest = order_of_least_sum(flow, min(peaks))
        assert closest is not None
        low = [order for order, peak in zip(orders, peaks, strict=True) if peak == min(peaks)]
        assert sum_of_bytes(flow, closest) == min(sum_of_bytes(flow, order) for order in low)
        tried, better = tried + 1, better + (found != given)
    assert tried >= 20 and better >= 4


def test_each_call_comes_after_those_it_needs() -> None:
    for seed in range(100, 130):
        flow = flow_from(seed)
        for order in (order_of_least_peak(flow), order_of_least_sum(flow, flow.peak_bytes(range(len(flow.before))))):
            if order is None:
                continue
            assert sorted(order) == list(range(len(flow.before)))
            at = {call: place for place, call in enumerate(order)}
            assert all(at[earlier] < at[call] for call, needed in enumerate(flow.before) for earlier in bits(needed))


def test_each_byte_is_written_once() -> None:
    """Calls that write to one tensor may change places; nothing between them hangs on who comes last."""
    for seed in SEEDS:
        storages, calls = select_calls(legalize(random_graphs.several(seed, 3, 12)))
        written = {name: np.zeros(storage.size_bytes, np.int8) for name, storage in storages.storages.items()}
        for call in calls:
            view = call.views["output"]
            axes = np.ogrid[tuple(slice(extent) for extent in view.extents)]
            index = view.offset + sum(axis * pitch for axis, pitch in zip(axes, view.pitches, strict=True))
            np.add.at(written[storages.of[view.tensor]], index.ravel(), 1)
        assert all(times.max(initial=0) <= 1 for times in written.values()), f"seed {seed}"


def test_a_graph_with_more_sets_than_the_limit_still_gets_an_order() -> None:
    """Forty branches of two calls: 3^40 sets of calls that are done. One after the other is best."""
    b = random_graphs.Builder(0)
    source = b.input((1, 8, 8, 4))
    wide = [b.node("logistic", [source], b.new(source.shape)) for _ in range(40)]
    narrow = [
        b.node("mean", [each, b.integers(1, 2)], b.new((1, 1, 1, 4), wide[0].quant), keep_dims=True) for each in wide
    ]
    flow = flow_of(*calls_of(b.graph(narrow)), ARENA)
    order = order_of_least_peak(flow)
    assert flow.peak_bytes(range(len(order))) > 40 * 256
    assert flow.peak_bytes(order) <= 256 + 256 + 40 * 16


def test_a_tensor_in_a_thousand_pieces_stays_in_order() -> None:
    b = random_graphs.Builder(0)
    source = b.input((1, 1100))
    pieces = [b.new((1, 1), source.quant) for _ in range(1100)]
    operands = (b.integers(1).name, source.name)
    b.nodes.append(Node("split", operands, tuple(piece.name for piece in pieces), {"num_splits": 1100}))
    graph = b.graph([b.node("add", pieces[:2], b.new((1, 1)), activation="NONE"), *pieces[2:]])
    calls, storages = calls_of(graph)
    assert len(calls) > MOST_CALLS
    assert order_of(calls, storages) == tuple(calls)


def order_of(calls: Sequence[KernelCall], storages: Storages) -> tuple[KernelCall, ...]:
    (found,) = Task(calls, storages, oracle.TARGET, CompileOptions()).orders()
    return found


def two_towers() -> Graph:
    """Two networks on two inputs, written layer by layer side by side, as users write them."""
    b = random_graphs.Builder(7)
    ends = [b.input((1, 24, 12, 4)), b.input((1, 24, 12, 4))]
    for filters, kernel in ((12, 3), (16, 3), (16, 3), (8, 1)):
        ends = [convolution(b, end, filters, (kernel, kernel)) for end in ends]
    return b.graph([b.node("add", ends, b.new(ends[0].shape), activation="NONE")])


@pytest.mark.without_tiles("tiles take the fastest order; whole tensors alone take that of the fewest live bytes")
@pytest.mark.parametrize("fetch", [False, True])
def test_one_tower_comes_after_the_other(fetch: bool) -> None:
    graph = two_towers()
    compiled = oracle.assert_bit_exact(graph, (0,), CompileOptions(prefetch_constants=fetch))
    calls, storages = calls_of(graph)
    flow = flow_of(calls, storages, ARENA)
    assert compiled.report.arena_bytes == flow.peak_bytes(order_of_least_peak(flow)) == 24 * 12 * (8 + 32)
    assert flow.peak_bytes(range(len(calls))) == 24 * 12 * (16 + 32)


@pytest.mark.parametrize("fetch", [False, True])
def test_two_towers_are_not_slower_with_more_memory(fetch: bool) -> None:
    graph = two_towers()
    whole = compile_graph(graph, oracle.TARGET, CompileOptions(prefetch_constants=fetch)).report
    budgets = np.linspace(oracle.least_budget(graph, fetch), whole.sram_bytes, 4).astype(int).tolist()
    cycles = [
        oracle.assert_bit_exact(
            graph, (0,), CompileOptions(sram_budget=budget, prefetch_constants=fetch)
        ).report.overlapped_cycles
        for budget in budgets
    ]
    assert cycles == sorted(cycles, reverse=True) and cycles[-1] == whole.overlapped_cycles


def test_a_chain_stays_and_one_list_of_calls() -> None:
    calls, storages = calls_of(cifarnet())
    assert stays(flow_of(calls, storages, ARENA))
    assert order_of(calls, storages) == tuple(calls)
    assert [list(each.calls) for each in for_cascades(CallList(tuple(calls), storages), storages, ALL)] == [calls]


@pytest.mark.parametrize("seed", range(300, 310))
def test_graphs_in_other_orders_are_exact(seed: int) -> None:
    """Programs of graphs whose order changes, whole and within half the difference to the least."""
    graph = random_graphs.several(seed, 6, 16)
    whole = oracle.assert_bit_exact(graph, (seed,)).report.sram_bytes
    try:
        compile_graph(graph, oracle.TARGET, CompileOptions(sram_budget=1))
    except BudgetError as error:
        oracle.assert_bit_exact(graph, (seed,), CompileOptions(sram_budget=(whole + error.least_bytes) // 2))
        oracle.assert_bit_exact(graph, (seed,), CompileOptions(sram_budget=error.least_bytes))
