# SPDX-License-Identifier: BSD-3-Clause
"""Operators become these kernel calls, byte-equal with LiteRT."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from openneutron.compiler.cost.cycles import call_cost, port_cycles
from openneutron.compiler.select.calls import KernelCall, View, dense_pitches
from openneutron.compiler.select.select import select_node
from openneutron.ir import Graph
from tests.support import oracle, random_graphs
from tests.support.embedding_tables import table


def samples(op: str, batches: int | None = None) -> Iterator[Graph]:
    """Random graphs of this one operator, of more than one batch if so many are asked for."""
    for seed in itertools.count():
        graph = random_graphs.single(op, seed)
        shape = graph[graph.inputs[0]].shape
        if len(graph.nodes) == 1 and (batches is None or (len(shape) == 4 and shape[0] >= batches)):
            yield graph


@pytest.mark.parametrize(
    ("op", "kernel"),
    [
        ("conv_2d", "conv_2d"),
        ("depthwise_conv_2d", "depthwise_conv_2d_s8"),
        ("average_pool_2d", "average_pool_2d_s8"),
        ("max_pool_2d", "max_pool_2d_s8"),
        ("mean", "mean_s8"),
        ("softmax", "softmax_s8"),
        ("relu", "lookup_s8"),
    ],
)
def test_several_batches_are_one_call(op: str, kernel: str) -> None:
    for graph in itertools.islice(samples(op, 2), 4):
        (made,) = oracle.kernels_of(oracle.assert_bit_exact(graph))
        assert made.startswith(kernel), graph


def test_a_fully_connected_layer_is_a_pointwise_convolution_of_its_vectors() -> None:
    for graph in itertools.islice(samples("fully_connected"), 8):
        (call,) = (each for each in oracle.assert_bit_exact(graph).schedule.calls if not each.is_transfer)
        assert call.kernel == "conv_2d_1x1_s8" and call.views["output"].extents[0] == 1
        # In tiles, the vectors are rows.
        assert call.views["output"].extents[1] == 1 or oracle.TARGET.moves_tiles


def test_pointwise_convolutions_have_a_kernel_of_their_own() -> None:
    found = set()
    for graph in itertools.islice(samples("conv_2d"), 30):
        for call in oracle.assert_bit_exact(graph, (0,)).schedule.calls:
            p = call.params
            if not call.is_transfer:
                found.add((call.kernel == "conv_2d_1x1_s8", p["kernel_h"] == p["kernel_w"] == 1))
    assert (True, True) in found and (False, False) in found and (True, False) not in found, found


def test_a_mean_costs_what_a_pool_of_its_window_would() -> None:
    """Turning one into the other would gain nothing; LiteRT rounds them differently anyway. A port may be slower than both."""
    checked = 0
    for graph in itertools.islice(samples("mean", 1), 12):
        compiled = oracle.assert_bit_exact(graph)
        for call in compiled.schedule.calls:
            if call.kernel == "mean_s8":
                batches, rows, cols, channels = call.views["input"].extents
                pool = batches * rows * cols * -(-channels // oracle.TARGET.all_pipelines)
                port = port_cycles(call, oracle.TARGET, call.views["output"].extents[1])
                assert call_cost(call, oracle.TARGET).compute_cycles == max(pool, port)
                checked += 1
    assert checked > 3


@pytest.mark.parametrize(
    ("shape", "width", "positions"),
    [
        ((6,), (64,), (1, 1, 6, 64)),
        ((2, 3), (64,), (1, 2, 3, 64)),
        ((2, 1, 3), (64,), (1, 2, 3, 64)),
        ((2, 3), (4, 16), (1, 1, 6, 64)),
        ((), (64,), (1, 1, 1, 64)),
    ],
)
def test_the_last_axis_of_indices_of_a_matrix_is_the_columns(
    shape: tuple[int, ...], width: tuple[int, ...], positions: tuple[int, ...]
) -> None:
    graph = table(300, shape, width)
    (call,) = select_node(graph, graph.nodes[0])
    assert call.kernel == "embedding_lookup_s8"
    assert call.views["output"].extents == positions
    assert call.views["indices"].extents == (*positions[:3], 4)


def test_a_sum_costs_its_steps_for_each_line_of_each_group_of_channels() -> None:
    source, result = (1, 8, 5, 32), (1, 2, 1, 16)
    views = {"input": View("x", source, dense_pitches(source)), "output": View("y", result, dense_pitches(result))}
    params = {"block_rows": 4, "input_zero_point": 0, "group_channels": 16}
    groups = -(-32 // oracle.TARGET.all_pipelines)
    call = KernelCall("group_sums_s8", "sums", views, params)
    assert call_cost(call, oracle.TARGET).compute_cycles == 2 * (8 * 5) * groups
