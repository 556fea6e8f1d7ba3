# SPDX-License-Identifier: BSD-3-Clause
"""Operators that take elements by position, and those that take tensors apart, against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.select.select import select_node
from openneutron.ir import Graph, Node, constant
from openneutron.ir.graph import AttrValue
from openneutron.ops import reject
from openneutron.ops.indexed import INDEXED
from tests.runtime import element_calls
from tests.support import oracle, random_graphs
from tests.support.widened import widened


@pytest.mark.parametrize("op", [*INDEXED, "pack"])
def test_bit_exact_in_any_windows(op: str) -> None:
    for seed in range(100, 120):
        graph = random_graphs.single(op, seed)
        if len(graph.nodes) == 1:
            element_calls.assert_bit_exact(graph, seed)


@pytest.mark.int16
@pytest.mark.parametrize("op", ["resize_bilinear", "pad", "mirror_pad", "transpose", "gather"])
def test_int16_is_bit_exact_in_any_windows(op: str) -> None:
    for seed in range(8):
        graph = widened(random_graphs.single(op, seed))
        if len(legalize(graph).nodes) == 1 and graph[graph.outputs[0]].elements < 2000:
            element_calls.assert_bit_exact(graph, seed)


def _one(
    op: str, shape: tuple[int, ...], result: tuple[int, ...], parameter: list[int], **attrs: AttrValue
) -> tuple[Graph, Node]:
    node = Node(op, ("x", "p"), ("y",), attrs)
    others = [constant("p", np.array(parameter, np.int32)), oracle.activation("y", result)]
    return oracle.graph_of([oracle.activation("x", shape)], [node], others), node


def test_rows_and_columns_are_the_axes_that_are_not_taken_whole() -> None:
    graph, node = _one("tile", (2, 3, 4, 5), (2, 6, 4, 10), [1, 2, 1, 2])
    calls = select_node(graph, node)
    assert [call.views["output"].extents for call in calls] == [(2, 10, 6, 4)]
    oracle.assert_bit_exact(graph)


def test_every_axis_may_be_tiled() -> None:
    graph, node = _one("tile", (2, 3, 4, 5), (4, 6, 8, 10), [2, 2, 2, 2])
    assert len(select_node(graph, node)) == 4 * 6
    oracle.assert_bit_exact(graph)


def _parts(op: str, operands: list[str], sizes: list[int], attrs: dict[str, AttrValue]) -> Graph:
    """A tensor of shape [2, 6, 4] taken apart along axis 1, every part an output."""
    shapes = [(2, size, 4) if op != "unpack" else (2, 4) for size in sizes]
    parts = [oracle.activation(f"y{i}", shape) for i, shape in enumerate(shapes)]
    node = Node(op, tuple(operands), tuple(part.name for part in parts), attrs)
    parameters = [constant("axis", np.array(1, np.int32)), constant("sizes", np.array(sizes, np.int32))]
    others = [*parts, *(item for item in parameters if item.name in operands)]
    return oracle.graph_of([oracle.activation("x", (2, 6, 4))], [node], others, [part.name for part in parts])


@pytest.mark.parametrize(
    ("op", "operands", "sizes", "attrs"),
    [
        ("split", ["axis", "x"], [2, 2, 2], {"num_splits": 3}),
        ("split_v", ["x", "sizes", "axis"], [1, 3, 2], {"num_splits": 3}),
        ("unpack", ["x"], [1] * 6, {"num": 6, "axis": 1}),
    ],
)
def test_every_part_is_bit_exact(op: str, operands: list[str], sizes: list[int], attrs: dict[str, AttrValue]) -> None:
    oracle.assert_bit_exact(_parts(op, operands, sizes, attrs))


def test_what_can_not_be_taken_is_said() -> None:
    graph, node = _one("gather", (2, 3), (2, 2), [0, 3], axis=1, batch_dims=0)
    assert reject(graph, node) == "its indices go from 0 to 3; the axis has positions 0 to 2"
    node = Node("mirror_pad", ("x", "p"), ("y",), {"mode": "REFLECT"})
    amounts = constant("p", np.array([[0, 0], [3, 0]], np.int32))
    graph = oracle.graph_of([oracle.activation("x", (2, 3))], [node], [amounts, oracle.activation("y", (2, 6))])
    assert reject(graph, node) == "it pads axis 1 of extent 3 by (3, 0); REFLECT allows 0 to 2"
    graph, node = _one("broadcast_to", (2, 3), (4, 3), [4, 3])
    assert reject(graph, node) == "its input has shape [2, 3], which does not broadcast to [4, 3]"
    graph, node = _one("tile", (2, 3, 9, 9), (4, 6, 9, 9), [2, 2, 0, 1])
    assert reject(graph, node) == "its counts are [2, 2, 0, 1]; there must be 4, each above 0"
    graph, node = _one("tile", (8, 9, 9, 9), (16, 18, 18, 18), [2, 2, 2, 2])
    assert reject(graph, node) == (
        "it would take 288 kernel calls, one for each position of the axes beyond two; at most 64"
    )
    parts = _parts("split_v", ["x", "sizes", "axis"], [1, 3, 1], {"num_splits": 3})
    assert reject(parts, parts.nodes[0]) == ("it has 3 outputs, whose sizes do not add up to the 6 positions of axis 1")
