# SPDX-License-Identifier: BSD-3-Clause
"""Normalizations and linear layers of sequences in one call, and linear layers of one input side by side: calls and bytes."""

from __future__ import annotations

from unittest import mock

import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.cost.cycles import call_cost
from openneutron.compiler.rewrite.join import CHAINED
from openneutron.compiler.rewrite.passes import selections
from openneutron.compiler.search import fit
from openneutron.ir import Graph
from tests.support import oracle
from tests.support.attention_graphs import block as attention_block
from tests.support.token_blocks import Block, chained, feed_forward, merged


def kernels(graph: Graph, options: CompileOptions = CompileOptions()) -> list[str]:
    return [kernel.removesuffix("_s8") for kernel in oracle.kernels_of(oracle.assert_bit_exact(graph, (0, 1), options))]


def assert_kernels(graph: Graph, expected: list[str]) -> None:
    """Compare bytes with LiteRT's on any chip, and the kernels on one whose programs have no tiles: chained calls have none."""
    assert kernels(graph) == expected or oracle.TARGET.moves_tiles


def test_each_chained_kernel_has_the_bytes_of_its_parts() -> None:
    graphs = chained()
    assert set(graphs) == set(CHAINED.values())
    for kernel, graph in graphs.items():
        assert f"{kernels(graph)[0]}_s8" == kernel or oracle.TARGET.moves_tiles


@pytest.mark.parametrize("shape", [(3, 5, 20), (1, 8), (2, 3, 1, 24)])
def test_tokens_of_any_number_of_axes(shape: tuple[int, ...]) -> None:
    block = Block(shape)
    assert_kernels(block.graph(block.linear(block.norm("x"), 12)), ["layer_norm_conv_2d_1x1"])
    block = Block(shape)
    assert_kernels(block.graph(feed_forward(block, "x", True)), ["layer_norm_feed_forward"])


@pytest.mark.parametrize("zero_points", [(-9, -9, -9), (-9, 4, 4), (3, -20, 11)])
def test_linear_layers_of_one_input(zero_points: tuple[int, int, int]) -> None:
    """They are one call, also where the results have zero points of their own, and read at any place."""
    kernel = "conv_2d_1x1" if len(set(zero_points)) == 1 else "conv_2d_1x1_parts"
    assert_kernels(merged(zero_points), [kernel, "add", "add", "add"])


def test_results_that_stay_apart() -> None:
    block = Block()  # 20 channels are no whole blocks
    graph = block.graph(block.gelu(block.gelu(block.linear("x", 20))), block.linear("x", 20))
    assert "conv_2d_1x1_parts" not in kernels(graph)
    block = Block()  # the normalization has two readers
    source = block.norm("x")
    assert kernels(block.graph(block.linear(source, 12), block.gelu(source)))[0] == "layer_norm"
    block = Block((1, 4, 4, 24))  # an image
    assert kernels(block.graph(block.linear(block.norm("x"), 12)))[-1] != "layer_norm"


def test_within_a_budget() -> None:
    """The parts are computed by rows if the budget is too small for the chained call."""
    block = Block((1, 64, 24))
    graph = block.graph(feed_forward(block, "x", True))
    for fetch in (False, True):
        least = oracle.least_budget(graph, fetch=fetch)
        options = CompileOptions(sram_budget=least, prefetch_constants=fetch, check=True)
        inputs = oracle.random_inputs(graph, 2)
        oracle.assert_fits_and_is_exact(graph, options, inputs, oracle.reference_outputs(graph, inputs))


@pytest.mark.without_tiles("the chained calls, which have no tiles, are the only selection")
def test_each_chained_kernel_by_rows() -> None:
    """The call computes some rows at a time, with scratch for these rows, in less memory and with the bytes of the whole."""
    for kernel, graph in chained().items():
        with mock.patch.object(fit, "selections", lambda *given: selections(*given)[:1]):
            whole = compile_graph(graph, oracle.TARGET).report.sram_bytes
            least = oracle.least_budget(graph)
            report = oracle.assert_bit_exact(graph, (0, 1), CompileOptions(sram_budget=least)).report
        assert report.sram_bytes <= least < whole, kernel
        (call,) = (call for call in report.operators if call.kernel == kernel)
        assert call.stripes > 1, kernel


@pytest.mark.without_tiles("chained calls have no tiles")
def test_a_feed_forward_block_with_less_scratch() -> None:
    """One call goes through its rows in blocks, with scratch for a block, and writes over the rows that it has read; stripes take less."""
    block = Block((1, 64, 24))
    graph = block.graph(feed_forward(block, "x", True))
    whole = compile_graph(graph, oracle.TARGET).report
    blocks, stripes = (
        oracle.assert_bit_exact(graph, (0,), CompileOptions(sram_budget=whole.sram_bytes * tenths // 10)).report
        for tenths in (5, 3)
    )
    assert [(call.kernel, call.stripes) for call in blocks.operators] == [("layer_norm_feed_forward_s8", 1)]
    assert blocks.cycles == whole.cycles
    (rows,) = {each.rows_held for each in blocks.memory if each.rows_held}
    assert rows in (8, 16)
    given = 64 * 24
    between = sum(each.size_bytes for each in blocks.memory if each.rows_held)
    assert blocks.sram_bytes == given + rows * 24 + between
    assert [(call.kernel, call.stripes > 1) for call in stripes.operators] == [("layer_norm_feed_forward_s8", True)]


@pytest.mark.without_tiles("chained calls have no tiles")
def test_each_chained_kernel_over_rows_that_it_has_read() -> None:
    """One call writes a block of its output over the blocks of its input before it."""
    for kernel, graph in chained((1, 40, 24)).items():
        whole = compile_graph(graph, oracle.TARGET).report
        if len(whole.operators) > 1:
            continue  # a budget suits another selection of the calls
        made = oracle.assert_bit_exact(graph, (0,), CompileOptions(sram_budget=whole.sram_bytes * 7 // 10))
        assert (kernel, 1) in {(call.kernel, call.stripes) for call in made.report.operators}, kernel
        assert made.schedule.overlaps, kernel
        assert made.report.cycles == whole.cycles, kernel


@pytest.mark.without_tiles("the memory of the NPU has tiles, so half of it takes the same calls")
def test_batches_one_after_the_other() -> None:
    """Within a budget each batch has its own calls, chained like those of all batches."""
    graph = attention_block(6, 4, 6, 2, 8, layer_norm=True)
    whole = compile_graph(graph, oracle.TARGET).report
    half = oracle.assert_bit_exact(graph, (0,), CompileOptions(sram_budget=whole.sram_bytes // 2)).report
    assert [call.kernel for call in half.operators] == 4 * [call.kernel for call in whole.operators]


@pytest.mark.without_tiles("chained calls have no tiles")
def test_the_cost_is_that_of_the_parts_with_one_dispatch() -> None:
    block = Block()
    graph = block.graph(feed_forward(block, "x", True))
    (call,) = compile_graph(graph, oracle.TARGET).schedule.calls
    cost, (first, second) = call_cost(call, oracle.TARGET), call.parts
    norm, layers = call_cost(first, oracle.TARGET), call_cost(second, oracle.TARGET)
    assert cost.compute_cycles == norm.compute_cycles + layers.compute_cycles
    assert (cost.macs, cost.issue_cycles) == (layers.macs, norm.issue_cycles)
    assert layers.macs == 7 * 2 * 24 * 40
