# SPDX-License-Identifier: BSD-3-Clause
"""Linear layers with the table, sum or product behind them in one call: the calls, and LiteRT's bytes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.ir import Graph, Node, constant, per_channel, per_tensor
from tests.support import oracle

FLAT = {"activation": "NONE", "weights_format": "DEFAULT"}


def graph_of(
    op: str, turned: bool = False, shape: tuple[int, ...] = (12, 24), outputs: tuple[str, ...] = ("z",)
) -> Graph:
    """Return a linear layer of 20 outputs with an operator behind it; ``turned``: the layer's result is the second operand."""
    random = np.random.default_rng(3)
    result = (*shape[:-1], 20)
    weights = constant("w", random.integers(-127, 128, (20, shape[-1])).astype(np.int8), per_channel([0.01] * 20, 0))
    bias = constant("b", random.integers(-900, 900, 20).astype(np.int32), per_channel([0.0004] * 20, 0))
    x = oracle.activation("x", shape, 0.04, 5)
    y, z, r = (
        oracle.activation(name, result, scale, zero)
        for name, scale, zero in (("y", 0.11, -9), ("z", 0.13, 3), ("r", 0.07, 30))
    )
    layer = Node("fully_connected", ("x", "w", "b"), ("y",), {**FLAT, "keep_num_dims": len(shape) != 2})
    if op == "gelu":
        second = Node("gelu", ("y",), ("z",), {"approximate": False})
        return oracle.graph_of([x], [layer, second], [weights, bias, y, z], outputs)
    attrs = {"activation": "RELU" if op == "add" else "NONE"}
    second = Node(op, ("r", "y") if turned else ("y", "r"), ("z",), attrs)
    return oracle.graph_of([x, r], [layer, second], [weights, bias, y, z, r], outputs)


@pytest.mark.parametrize("shape", [(12, 24), (1, 3, 4, 24)])
@pytest.mark.parametrize(
    ("op", "turned"), [("gelu", False), ("add", False), ("add", True), ("mul", True), ("sub", False)]
)
def test_one_call_of_the_same_bytes(op: str, turned: bool, shape: tuple[int, ...]) -> None:
    made = oracle.assert_bit_exact(graph_of(op, turned, shape))
    kernel = {"gelu": "lookup", "sub": "add"}.get(op, op)
    assert [call.kernel for call in made.report.operators] == [f"conv_2d_1x1_{kernel}_s8"]


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
    assert made.report.operators[0].kernel == "conv_2d_1x1_s8"


def test_a_sum_of_a_result_with_itself_stays() -> None:
    graph = graph_of("add")
    layer, second = graph.nodes
    twice = dataclasses.replace(second, inputs=("y", "y"))
    made = oracle.assert_bit_exact(graph.rebuilt((layer, twice)))
    assert [call.kernel for call in made.report.operators] == ["conv_2d_1x1_s8", "add_s8"]


def test_calls_over_images_stay_apart() -> None:
    """Cascades cut these by rows and patches, where joined calls would be in the way."""
    x = oracle.activation("x", (1, 6, 6, 8))
    w = constant("w", np.ones((8, 1, 1, 8), np.int8), per_tensor(0.02, 0))
    b = constant("b", np.zeros(8, np.int32), per_tensor(0.001, 0))
    attrs = {"padding": "VALID", "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "activation": "NONE"}
    nodes = [Node("conv_2d", ("x", "w", "b"), ("y",), attrs), Node("gelu", ("y",), ("z",), {"approximate": False})]
    y, z = oracle.activation("y", (1, 6, 6, 8), 0.1), oracle.activation("z", (1, 6, 6, 8), 0.1)
    made = compile_graph(oracle.graph_of([x], nodes, [w, b, y, z]), oracle.TARGET)
    assert [call.kernel for call in made.report.operators] == ["conv_2d_1x1_s8", "lookup_s8"]
