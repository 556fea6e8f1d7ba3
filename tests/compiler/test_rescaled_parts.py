# SPDX-License-Identifier: BSD-3-Clause
"""QUANTIZE and other tables beside concatenations and enlarged images take few calls, with the same bytes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from openneutron.compiler import compile_graph
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.legalize.quantize import join_slices
from openneutron.ir import Graph, Node, Tensor, constant
from tests.support import oracle

NONE = {"activation": "NONE"}
SHAPE = (1, 4, 4, 6)
X, SECOND = (0.05, -9), (0.08, 4)
SIGMOID = (1 / 256, -128)
CENTRES = {"align_corners": False, "half_pixel_centers": False}


def graph_of(nodes: list[Node], tensors: list[Tensor], outputs: tuple[str, ...] = ("y",)) -> Graph:
    return oracle.graph_of([oracle.activation("x", SHAPE, *X)], nodes, tensors, outputs)


def integers(name: str, *values: int) -> Tensor:
    return constant(name, np.array(values, np.int32))


def slices(
    *bounds: tuple[int, int], quants: tuple[tuple[float, int], ...] = (), outputs: tuple[str, ...] = ("y",)
) -> Graph:
    """Slices of the channels of x, each rescaled if there are ``quants``, and joined along the channels."""
    nodes, tensors, joined = [], [], []
    for number, (begin, end) in enumerate(bounds):
        part = (*SHAPE[:3], end - begin)
        tensors += [integers(f"b{number}", 0, 0, 0, begin), integers(f"s{number}", *part)]
        tensors.append(oracle.activation(f"p{number}", part, *X))
        nodes.append(Node("slice", ("x", f"b{number}", f"s{number}"), (f"p{number}",)))
        joined.append(f"p{number}")
        if quants:
            tensors.append(oracle.activation(f"q{number}", part, *quants[number]))
            nodes.append(Node("quantize", (f"p{number}",), (f"q{number}",)))
            joined[-1] = f"q{number}"
    width = sum(end - begin for begin, end in bounds)
    tensors.append(oracle.activation("y", (*SHAPE[:3], width), *(quants[0] if quants else X)))
    nodes.append(Node("concatenation", tuple(joined), ("y",), {"axis": -1, **NONE}))
    return graph_of(nodes, tensors, outputs)


def operators(graph: Graph) -> list[str]:
    return [node.op for node in legalize(graph).nodes]


def kernels(graph: Graph) -> Counter[str]:
    oracle.assert_bit_exact(graph, seeds=(0,))
    return Counter(oracle.kernels_of(compile_graph(graph, oracle.TARGET)))


def test_neighbouring_slices_are_one() -> None:
    twice = (SECOND, SECOND)
    assert operators(slices((0, 2), (2, 6))) == ["reshape"]
    assert operators(slices((0, 2), (2, 6), quants=twice)) == ["quantize", "reshape"]
    assert operators(slices((1, 2), (2, 5), quants=twice)) == ["slice", "quantize", "reshape"]
    for graph in (slices((0, 2), (2, 6)), slices((0, 2), (2, 6), quants=twice), slices((1, 2), (2, 5), quants=twice)):
        assert sum(kernels(graph).values()) == 1


def test_slices_that_cut_another_axis_too_stay() -> None:
    """Their channels are neighbours in x, and their rows are not all of x."""
    nodes, tensors = [], []
    for number, (begin, end) in enumerate(((0, 2), (2, 6))):
        part = (1, 2, 4, end - begin)
        tensors += [integers(f"b{number}", 0, number, 0, begin), integers(f"s{number}", *part)]
        tensors.append(oracle.activation(f"p{number}", part, *X))
        nodes.append(Node("slice", ("x", f"b{number}", f"s{number}"), (f"p{number}",)))
    tensors.append(oracle.activation("y", (1, 2, 4, 6), *X))
    nodes.append(Node("concatenation", ("p0", "p1"), ("y",), {"axis": -1, **NONE}))
    graph = graph_of(nodes, tensors)
    assert operators(graph) == ["slice", "slice", "concatenation"]
    oracle.assert_bit_exact(graph, seeds=(0,))


def test_a_graph_without_such_parts_is_unchanged() -> None:
    graph = slices((2, 6), (0, 2))
    assert join_slices(graph) is graph


@pytest.mark.parametrize(
    "graph",
    [
        slices((2, 6), (0, 2)),
        slices((0, 2), (3, 6)),
        slices((0, 2), (2, 6), quants=(SECOND, SECOND), outputs=("y", "q0", "q1")),
    ],
    ids=["in another order", "with a gap", "rescaled for another reader"],
)
def test_other_slices_stay(graph: Graph) -> None:
    assert Counter(operators(graph)) == Counter(node.op for node in graph.nodes)
    oracle.assert_bit_exact(graph, seeds=(0,))


def enlarged(outputs: tuple[str, ...] = ("y",)) -> Graph:
    """A LOGISTIC that is read by a QUANTIZE, and enlarged and rescaled otherwise."""
    nodes = [
        Node("logistic", ("x",), ("s",)),
        Node("resize_nearest_neighbor", ("s", "size"), ("large",), CENTRES),
        Node("quantize", ("large",), ("y",)),
        Node("quantize", ("s",), ("z",)),
    ]
    large = (1, 8, 8, 6)
    tensors = [
        oracle.activation("s", SHAPE, *SIGMOID),
        integers("size", 8, 8),
        oracle.activation("large", large, *SIGMOID),
        oracle.activation("y", large, 0.006, -100),
        oracle.activation("z", SHAPE, 0.005, -90),
    ]
    return graph_of(nodes, tensors, (*outputs, "z"))


def test_a_small_image_is_rescaled() -> None:
    assert operators(enlarged()) == ["logistic", "quantize", "resize_nearest_neighbor", "quantize"]
    # LOGISTIC itself is gone: both tables read its input.
    assert kernels(enlarged()) == {"lookup_s8": 2, "resize_nearest_neighbor_s8": 1}


def test_an_enlarged_image_with_another_reader_stays() -> None:
    graph = enlarged(("y", "large"))
    assert operators(graph) == [node.op for node in graph.nodes]
    assert kernels(graph) == {"lookup_s8": 3, "resize_nearest_neighbor_s8": 1}


def scores(before: str, outputs: tuple[str, ...] = ("y",)) -> Graph:
    """Scores of three heads that are transposed, rescaled or nothing, joined, and then a LOGISTIC with a QUANTIZE, as detectors have them."""
    nodes, tensors, joined = [], [integers("order", 0, 3, 1, 2)], []
    for number in range(3):
        bias = constant(f"c{number}", np.full((1, 1, 1, 1), 20 * number + 1, np.int8), oracle.activation("", ()).quant)
        tensors += [bias, oracle.activation(f"h{number}", SHAPE, *X)]
        nodes.append(Node("add", ("x", f"c{number}"), (f"h{number}",), NONE))
        nodes.append(
            Node(
                "exp" if before == "nothing" else before,
                (f"h{number}", "order")[: 1 + (before == "transpose")],
                (f"t{number}",),
            )
        )
        tensors.append(
            oracle.activation(
                f"t{number}",
                (1, 6, 4, 4) if before == "transpose" else SHAPE,
                *(X if before == "transpose" else SECOND),
            )
        )
        joined.append(f"t{number}")
    shape = (3, *tensors[-1].shape[1:])
    quant = X if before == "transpose" else SECOND
    tensors += [
        oracle.activation("j", shape, *quant),
        oracle.activation("s", shape, *SIGMOID),
        oracle.activation("y", shape, 0.004, -120),
    ]
    nodes += [
        Node("concatenation", tuple(joined), ("j",), {"axis": 0, **NONE}),
        Node("logistic", ("j",), ("s",)),
        Node("quantize", ("s",), ("y",)),
    ]
    return graph_of(nodes, tensors, outputs)


@pytest.mark.parametrize("before", ["quantize", "transpose", "exp"])
def test_tables_of_joined_tables_are_one_with_them(before: str) -> None:
    graph = scores(before)
    assert kernels(graph)["lookup_s8"] == 3
    assert "copy_s8" not in kernels(graph)


def test_the_table_of_what_is_read_elsewhere_stays() -> None:
    graph = scores("quantize", ("y", "j"))
    assert operators(graph)[-3:] == ["concatenation", "logistic", "quantize"]
    oracle.assert_bit_exact(graph, seeds=(0,))
