# SPDX-License-Identifier: BSD-3-Clause
"""Cascades do not compute unread regions, and more memory is never slower, not even where whole tensors fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.rewrite.passes import select_calls
from openneutron.compiler.schedule.schedule import spent_on_calls, whole_schedule
from openneutron.compiler.search.fit import Task
from openneutron.compiler.select.needs import in_place, parts_may_be_faster
from openneutron.ir import Graph, Tensor, per_tensor
from tests.support import oracle
from tests.support.oracle import least_budget
from tests.support.random_graphs import Builder
from tests.support.random_images import image_graph

ENOUGH = 1 << 30


def convolution(b: Builder, source: Tensor, filters: int, kernel: int, stride: int, padding: str) -> Tensor:
    weights = b.const(
        b.random.integers(-127, 128, (filters, kernel, kernel, source.shape[3])).astype(np.int8), per_tensor(0.002, 0)
    )
    assert source.quant is not None
    bias = b.const(np.zeros(filters, np.int32), per_tensor(source.quant.scale * 0.002, 0))
    side = -(-source.shape[1] // stride) if padding == "SAME" else (source.shape[1] - kernel) // stride + 1
    attrs = {"padding": padding, "stride_h": stride, "stride_w": stride, "dilation_h": 1, "dilation_w": 1}
    return b.node("conv_2d", [source, weights, bias], b.new((1, side, side, filters)), activation="NONE", **attrs)


def then_pooled(side: int, channels: int, filters: int, kernel: int) -> Graph:
    """A convolution and a pool that leaves rows and columns over at the end."""
    b = Builder(side)
    made = convolution(b, b.input((1, side, side, channels)), filters, 3, 1, "SAME")
    out = (side - kernel) // kernel + 1
    attrs = {"padding": "VALID", "stride_h": kernel, "stride_w": kernel, "kernel_h": kernel, "kernel_w": kernel}
    return b.graph(
        [b.node("max_pool_2d", [made], b.new((1, out, out, filters), made.quant), activation="NONE", **attrs)]
    )


def then_strided(side: int, channels: int, filters: int, stride: int) -> Graph:
    """A convolution of which the next one reads every so manieth row and column."""
    b = Builder(side)
    made = convolution(b, b.input((1, side, side, channels)), filters, 3, 1, "SAME")
    return b.graph([convolution(b, made, 16, 1, stride, "VALID")])


@pytest.mark.parametrize(
    "graph",
    [then_pooled(11, 64, 64, 5), then_pooled(23, 16, 32, 8), then_strided(33, 8, 64, 3), then_strided(48, 16, 64, 6)],
    ids=["pooled 11", "pooled 23", "strided 33", "strided 48"],
)
def test_more_memory_is_never_slower(graph: Graph) -> None:
    whole = compile_graph(graph, oracle.TARGET, CompileOptions()).report
    # In tiles, transfers take cycles beside the calls.
    less = whole.cycles < sum(whole_cycles(graph)) or oracle.TARGET.moves_tiles
    assert less, "with all memory too what nobody reads is left out"
    before = None
    for budget in (*np.linspace(least_budget(graph), whole.sram_bytes, 12), whole.sram_bytes * 3):
        compiled = compile_graph(graph, oracle.TARGET, CompileOptions(sram_budget=int(budget)))
        assert before is None or compiled.report.cycles <= before
        before = compiled.report.cycles
    oracle.assert_bit_exact(graph)


def test_least_budget_of_the_error_is_feasible_with_prefetch() -> None:
    graph, options = then_pooled(23, 16, 32, 8), CompileOptions(prefetch_constants=True)
    whole = compile_graph(graph, oracle.TARGET, options).report
    least = least_budget(graph, True, options.place)
    smallest = oracle.assert_bit_exact(graph, (0,), replace(options, sram_budget=least)).report
    assert smallest.sram_bytes <= least < sum(tensor.size_bytes for tensor in graph.tensors.values())
    assert whole.overlapped_cycles <= smallest.overlapped_cycles
    assert smallest.overlapped_cycles < sum(whole_cycles(graph)) or oracle.TARGET.moves_tiles


def whole_cycles(graph: Graph) -> list[int]:
    _, calls = select_calls(legalize(graph))
    return [cycles for _, cycles in spent_on_calls(whole_schedule(calls), oracle.TARGET)]


@pytest.mark.parametrize("seed", range(40))
def test_where_nothing_can_be_left_out_no_cascade_is_faster(seed: int) -> None:
    graph = image_graph(seed)
    storages, calls = select_calls(legalize(graph))
    own = in_place(storages, calls)
    found = [each.fastest(ENOUGH) for each in Task(calls, storages, oracle.TARGET, CompileOptions()).cascades()]
    best = min(each.cycles for each in found if each is not None)
    assert best <= sum(whole_cycles(graph))
    assert parts_may_be_faster(calls, own, oracle.TARGET) or best == sum(whole_cycles(graph))
