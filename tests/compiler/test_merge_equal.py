# SPDX-License-Identifier: BSD-3-Clause
"""Equal nodes of a graph become one where that changes no output."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.legalize.legalize import merge_equal
from openneutron.ir import DType, Graph, Node, Tensor, constant, per_tensor
from tests.support.oracle import TARGET, kernels_of, random_inputs, reference_outputs, simulated_outputs

SHAPE = (1, 4, 4, 8)


def sums(addends: tuple[int, int], scales: tuple[float, float], activations: tuple[str, str], outputs: str) -> Graph:
    """Return a graph of two sums, a and b, of x and a constant each, and of y, their product."""
    tensors = [Tensor("x", SHAPE, DType.INT8, per_tensor(0.1, 3)), Tensor("y", SHAPE, DType.INT8, per_tensor(0.2, 0))]
    for name, addend, scale in zip("ab", addends, scales, strict=True):
        tensors.append(constant(f"{name}_addend", np.full(SHAPE, addend, np.int8), per_tensor(0.1, 0)))
        tensors.append(Tensor(name, SHAPE, DType.INT8, per_tensor(scale, 0)))
    nodes = [
        Node("add", ("x", f"{name}_addend"), (name,), {"activation": activation})
        for name, activation in zip("ab", activations, strict=True)
    ]
    nodes.append(Node("mul", ("a", "b"), ("y",), {"activation": "NONE"}))
    return Graph("g", {tensor.name: tensor for tensor in tensors}, tuple(nodes), ("x",), tuple(outputs))


ALIKE = ((5, 5), (0.2, 0.2), ("RELU", "RELU"))


def test_equal_sums_are_computed_once() -> None:
    graph = sums(*ALIKE, "y")
    program = compile_graph(graph, TARGET, CompileOptions())
    assert kernels_of(program) == ["add_s8", "mul_s8"]
    inputs = random_inputs(graph, 3)
    for got, want in zip(simulated_outputs(program, inputs), reference_outputs(graph, inputs), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "graph",
    [
        sums((5, 6), (0.2, 0.2), ("RELU", "RELU"), "y"),
        sums((5, 5), (0.2, 0.3), ("RELU", "RELU"), "y"),
        sums((5, 5), (0.2, 0.2), ("RELU", "NONE"), "y"),
        sums(*ALIKE, "yb"),
    ],
    ids=["constants", "scales", "attributes", "an output"],
)
def test_what_differs_or_leaves_the_graph_stays(graph: Graph) -> None:
    assert merge_equal(graph) is graph


def test_constants_of_which_only_the_shape_is_known_are_not_equal() -> None:
    graph = sums(*ALIKE, "y")
    unknown = {
        name: Tensor(name, SHAPE, DType.INT8, graph[name].quant, np.broadcast_to(np.int8(0), SHAPE))
        for name in ("a_addend", "b_addend")
    }
    whole = Graph(graph.name, {**graph.tensors, **unknown}, graph.nodes, graph.inputs, graph.outputs)
    assert merge_equal(whole) is whole
