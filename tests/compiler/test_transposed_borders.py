# SPDX-License-Identifier: BSD-3-Clause
"""Transposes at a graph's borders, as PyTorch's images have them, run in stripes along with what is between them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.select.needs import Walk, merged, row_major, with_rows
from openneutron.errors import BudgetError
from openneutron.ir import Graph, Node, constant
from tests.support.oracle import TARGET, activation, assert_bit_exact, graph_of

SIDE, CHANNELS = 32, 4


def planes_to_planes() -> Graph:
    """[1, 4, 32, 32], channels outside, to the same: a transpose, two pools, a transpose."""
    image = (1, SIDE, SIDE, CHANNELS)
    tensors = [activation(name, image) for name in ("a", "b", "c")]
    orders = [
        constant(name, np.array(order, np.int32)) for name, order in (("in", (0, 2, 3, 1)), ("out", (0, 3, 1, 2)))
    ]
    pool = {"padding": "SAME", "kernel_h": 3, "kernel_w": 3, "stride_h": 1, "stride_w": 1, "activation": "NONE"}
    nodes = [
        Node("transpose", ("x", "in"), ("a",)),
        Node("max_pool_2d", ("a",), ("b",), pool),
        Node("average_pool_2d", ("b",), ("c",), pool),
        Node("transpose", ("c", "out"), ("y",)),
    ]
    planes = [activation(name, (1, CHANNELS, SIDE, SIDE)) for name in ("x", "y")]
    return graph_of(planes[:1], nodes, [*tensors, *orders, planes[1]])


@pytest.mark.parametrize("io", ["arena", "caller"])
def test_transposed_borders_take_no_second_copy(io: str) -> None:
    graph = planes_to_planes()
    with pytest.raises(BudgetError) as caught:
        compile_graph(graph, TARGET, CompileOptions(sram_budget=1, io_place=io))
    least = caught.value.least_bytes
    # Of the three tensors between input and output a few rows are there, or one is while only one of those two is.
    border, row = 2 * SIDE * SIDE * CHANNELS, SIDE * CHANNELS
    assert least <= border + (12 * row if io == "caller" else 0)
    for budget in (least, 2 * border):
        assert_bit_exact(graph, options=CompileOptions(sram_budget=budget, io_place=io))


def test_a_result_takes_the_memory_of_rows_of_the_first_plane() -> None:
    """Planes of 4 KiB in all, patches of 4 x 4 to 1 KiB: a stripe has 4 rows of an image, which are free in the first plane behind it."""
    transpose = constant("order", np.array((0, 2, 3, 1), np.int32))
    image, pooled = activation("a", (1, SIDE, SIDE, CHANNELS)), activation("y", (1, SIDE // 4, SIDE // 4, CHANNELS))
    pool = {"padding": "VALID", "kernel_h": 4, "kernel_w": 4, "stride_h": 4, "stride_w": 4, "activation": "NONE"}
    nodes = [Node("transpose", ("x", "order"), ("a",)), Node("average_pool_2d", ("a",), ("y",), pool)]
    planes = activation("x", (1, CHANNELS, SIDE, SIDE))
    graph = graph_of([planes], nodes, [image, transpose, pooled])
    with pytest.raises(BudgetError) as caught:
        compile_graph(graph, TARGET, CompileOptions(sram_budget=1))
    assert caught.value.least_bytes <= SIDE * SIDE * CHANNELS + 4 * SIDE * CHANNELS
    assert_bit_exact(graph, options=CompileOptions(sram_budget=caught.value.least_bytes))


def test_walks_with_rows_go_through_the_same_bytes() -> None:
    found = 0
    for shape in ((1, 3, 4, 5), (2, 6, 5), (1, 1, 4, 3), (1, 7, 1, 2), (3, 5)):
        for order in itertools.permutations(range(len(shape))):
            pitches = row_major(shape)
            result = tuple(shape[axis] for axis in order)
            walk = Walk("x", tuple(pitches[axis] for axis in order))
            extents, walks = merged(result, {"input": walk, "output": Walk("y", row_major(result))})
            rows, pitch = result[0], int(np.prod(result[1:]))
            if len(result) == 4:
                rows, pitch = result[1], result[2] * result[3]
            with_them = with_rows(extents, walks, "output", rows, pitch)
            if with_them is None:
                continue
            found += 1
            assert with_them[0][0] == rows
            assert with_them[1]["output"].pitches[0] == pitch
            assert visited(*with_them) == visited(extents, walks)
    assert found > 10


def visited(extents: tuple[int, ...], walks: dict[str, Walk]) -> list[tuple[int, int]]:
    """Each element's place in the input and in the output."""
    places = itertools.product(*map(range, extents))
    return sorted(
        (sum(map(int.__mul__, at, walks["input"].pitches)), sum(map(int.__mul__, at, walks["output"].pitches)))
        for at in places
    )
