# SPDX-License-Identifier: BSD-3-Clause
"""Lines divided by their length: the kernel against LiteRT's reference kernel."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron import ops
from openneutron.ir import Graph, Node
from tests.runtime import element_calls
from tests.support import oracle


def normalized(shape: tuple[int, ...], zero_point: int = 0) -> Graph:
    node, result = Node("l2_normalization", ("x",), ("y",)), oracle.activation("y", shape, 1 / 128)
    return oracle.graph_of([oracle.activation("x", shape, 0.05, zero_point)], [node], [result])


def assert_same(values: np.ndarray, zero_point: int) -> None:
    for lines in oracle.in_memory(values):
        graph = normalized(lines.shape, zero_point)
        compiled = oracle.compile_graph(graph, oracle.TARGET)
        got, want = oracle.simulated_outputs(compiled, [lines])[0], oracle.reference_outputs(graph, [lines])[0]
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", [(7,), (2, 5), (3, 1, 40), (2, 4, 3, 12), (1, 1, 1, 1)])
def test_bit_exact_in_any_windows(shape: tuple[int, ...]) -> None:
    for seed in range(6):
        element_calls.assert_bit_exact(normalized(shape, 40 * seed - 120), seed)


def test_every_sum_of_two_squares() -> None:
    pairs = np.stack(np.meshgrid(np.arange(-128, 128), np.arange(0, 128, 3)), -1).reshape(-1, 2).astype(np.int8)
    assert_same(pairs, 0)
    assert_same(pairs, -128)


@pytest.mark.parametrize("zero_point", [-128, 0, 127])
def test_sums_of_every_size(zero_point: int) -> None:
    """The count of extreme values in a line grows from 0 to 33,025, the most whose squares LiteRT adds in 32 bits."""
    count = 33_025
    counts = np.unique(np.geomspace(1, count, 60).astype(int))
    lines = np.full((len(counts) + 1, count), zero_point, np.int8)
    for line, filled in zip(lines[1:], counts, strict=True):
        line[:filled] = -128 if zero_point > 0 else 127
    assert_same(lines, zero_point)


def test_more_squares_than_the_sum_holds_are_refused() -> None:
    graph = normalized((1, 33_026))
    assert ops.reject(graph, graph.nodes[0]) == "it adds 33026 squares; LiteRT's sum holds 33025"
