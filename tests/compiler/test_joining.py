# SPDX-License-Identifier: BSD-3-Clause
"""Linear layers with the table, sum or product behind them in one call: the calls, and LiteRT's bytes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.ir import Graph, Node, constant, per_tensor
from tests.support import oracle
from tests.support.joined_graphs import graph_of


@pytest.mark.parametrize("shape", [(12, 24), (1, 3, 4, 24)])
@pytest.mark.parametrize(
    ("op", "turned"), [("gelu", False), ("add", False), ("add", True), ("mul", True), ("sub", False)]
)
def test_one_call_of_the_same_bytes(op: str, turned: bool, shape: tuple[int, ...]) -> None:
    made = oracle.assert_bit_exact(graph_of(op, turned, shape))
    kernel = {"gelu": "lookup", "sub": "add"}.get(op, op)
    assert oracle.kernels_of(made) == [f"conv_2d_1x1_{kernel}_s8"]


@pytest.mark.parametrize("turned", [False, True])
def test_a_gated_layer_is_two_calls(turned: bool) -> None:
    """Gate and result of the other layer are operands of one product, as in SwiGLU and gated GELU."""
    gate, other = graph_of("gelu"), graph_of("gelu").nodes[0]
    w, b, y = (dataclasses.replace(gate[name], name=f"other/{name}") for name in ("w", "b", "y"))
    assert w.data is not None
    w = dataclasses.replace(w, data=w.data[::-1].copy())
    layer = dataclasses.replace(other, inputs=("x", w.name, b.name), outputs=(y.name,))
    result = oracle.activation("result", y.shape, 0.2, 4)
    product = Node("mul", ("z", y.name) if turned else (y.name, "z"), ("result",), {"activation": "NONE"})
    tensors = [tensor for name, tensor in gate.tensors.items() if name != "x"]
    graph = oracle.graph_of([gate["x"]], [*gate.nodes, layer, product], [*tensors, w, b, y, result])
    made = oracle.assert_bit_exact(graph)
    kernels = oracle.kernels_of(made)
    assert sorted(kernels) == ["conv_2d_1x1_lookup_s8", "conv_2d_1x1_mul_s8"]


def test_in_stripes_and_with_prefetch() -> None:
    for op in ("gelu", "mul"):
        graph = graph_of(op, shape=(64, 24))
        for fetch in (False, True):
            least = oracle.least_budget(graph, fetch=fetch, io="caller")
            options = CompileOptions(sram_budget=least, prefetch_constants=fetch, io_place="caller", check=True)
            inputs = oracle.random_inputs(graph, 2)
            oracle.assert_fits_and_is_exact(graph, options, inputs, oracle.reference_outputs(graph, inputs))


@pytest.mark.parametrize(
    "graph",
    [
        graph_of("sub", turned=True),  # r - y: the kernel subtracts its second operand
        graph_of("gelu", outputs=("z", "y")),  # another reader
        graph_of("add", shape=(1, 24), outputs=("y", "z")),
    ],
)
def test_two_calls_stay(graph: Graph) -> None:
    made = oracle.assert_bit_exact(graph)
    assert oracle.kernels_of(made)[0] == "conv_2d_1x1_s8"


def test_a_sum_of_a_result_with_itself_stays() -> None:
    graph = graph_of("add")
    layer, second = graph.nodes
    twice = dataclasses.replace(second, inputs=("y", "y"))
    made = oracle.assert_bit_exact(graph.rebuilt((layer, twice)))
    assert oracle.kernels_of(made) == ["conv_2d_1x1_s8", "add_s8"]


def test_calls_over_images_stay_apart() -> None:
    """Cascades cut these by rows and patches, where joined calls would be in the way."""
    x = oracle.activation("x", (1, 6, 6, 8))
    w = constant("w", np.ones((8, 1, 1, 8), np.int8), per_tensor(0.02, 0))
    b = constant("b", np.zeros(8, np.int32), per_tensor(0.001, 0))
    attrs = {"padding": "VALID", "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "activation": "NONE"}
    nodes = [Node("conv_2d", ("x", "w", "b"), ("y",), attrs), Node("gelu", ("y",), ("z",), {"approximate": False})]
    y, z = oracle.activation("y", (1, 6, 6, 8), 0.1), oracle.activation("z", (1, 6, 6, 8), 0.1)
    made = compile_graph(oracle.graph_of([x], nodes, [w, b, y, z]), oracle.TARGET)
    assert oracle.kernels_of(made) == ["conv_2d_1x1_s8", "lookup_s8"]
