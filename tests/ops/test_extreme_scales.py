# SPDX-License-Identifier: BSD-3-Clause
"""Scales as far apart as a file allows: an operator is refused by its row, or it compiles and equals LiteRT."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openneutron import litert
from openneutron.compiler import compile_graph
from openneutron.ir import DType, Graph, Node, QuantParams, Tensor, constant, per_channel, per_tensor
from openneutron.ir.graph import AttrValue
from openneutron.ops import BY_NAME, reject
from tests.support import oracle, random_graphs

LARGEST = 60
"""Scales are 2^-60 to 2^60."""

SEEDS = range(6)


def with_extreme_scales(graph: Graph, random: np.random.Generator) -> Graph:
    """Return the graph with other scales, except those that LiteRT fixes. Tensors with one quantization keep one."""
    changed: dict[QuantParams, QuantParams] = {}
    fixed = {node.name for node in graph.nodes if BY_NAME[node.op].fixed_output}

    def extreme(quant: QuantParams) -> QuantParams:
        if quant not in changed:
            powers = random.uniform(-LARGEST, LARGEST, len(quant.scales))
            powers = np.round(powers) if random.random() < 0.3 else powers
            scales = quant.scales if random.random() < 0.4 else tuple(np.exp2(powers).tolist())
            changed[quant] = QuantParams(scales, quant.zero_points, quant.axis)
        return changed[quant]

    tensors = {
        name: tensor if tensor.quant is None or name in fixed else replace(tensor, quant=extreme(tensor.quant))
        for name, tensor in graph.tensors.items()
    }
    return replace(graph, tensors=tensors)


def _is_in_litert(op: str) -> bool:
    """Return whether LiteRT has the operator, or a file states it as operators that LiteRT has."""
    try:
        litert.write(random_graphs.single(op, 0))
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("op", [op for op in sorted(BY_NAME) if _is_in_litert(op)])
def test_every_row_refuses_what_later_stages_can_not_take(op: str) -> None:
    random = np.random.default_rng(sum(map(ord, op)))
    for seed in SEEDS:
        graph = with_extreme_scales(random_graphs.single(op, seed), random)
        if any(reject(graph, node) is not None for node in graph.nodes):
            continue
        compiled = compile_graph(graph, oracle.TARGET)
        inputs = oracle.random_inputs(graph, seed)
        got = oracle.simulated_outputs(compiled, inputs)
        try:
            want = oracle.reference_outputs(graph, inputs)
        except (RuntimeError, ValueError):
            continue  # LiteRT refuses a bias whose scale is not the product of the other two.
        for ours, theirs in zip(got, want, strict=True):
            np.testing.assert_array_equal(ours, theirs, f"seed {seed}\n{graph}")


def reason(op: str, scales: tuple[float, ...], result: float, **attrs: AttrValue) -> str | None:
    """Return why a node on [1, 4, 4, 2] with inputs and an output of these scales is refused."""
    names = "abc"[: len(scales)]
    inputs = [Tensor(name, (1, 4, 4, 2), DType.INT8, per_tensor(s, 0)) for name, s in zip(names, scales, strict=True)]
    output = Tensor("y", (1, 4, 4, 2), DType.INT8, per_tensor(result, 0))
    graph = oracle.graph_of(inputs, [Node(op, tuple(names), ("y",), attrs)], [output])
    return reject(graph, graph.nodes[0])


SUM = "its output has scale 1e-08, an input 1; LiteRT demands an output scale above 1/2^19 of the larger input's"


@pytest.mark.parametrize(
    ("op", "scales", "result", "attrs", "words"),
    [
        ("quantize", (2.0**30,), 1.0, {}, "its scales make a rescaling factor of 1.07374e+09; it must be below 2^30"),
        ("relu", (2.0**30,), 1.0, {}, "its scales make a rescaling factor of 1.07374e+09; it must be below 2^30"),
        ("leaky_relu", (1.0,), 1.0, {"alpha": 2e9}, "its scales make a rescaling factor of 2e+09; it must be below 2^30"),
        ("mul", (2.0**20, 2.0**20), 1.0, {"activation": "NONE"}, "its scales make a rescaling factor of 1.09951e+12; it must be below 2^30"),
        ("mul", (1e30, 1e30), 1e30, {"activation": "NONE"}, "its scales make a rescaling factor of inf; it must be below 2^30"),
        ("prelu", (2.0**30, 0.5), 1.0, {}, "its scales make a rescaling factor of 1.07374e+09; it must be below 2^30"),
        ("hard_swish", (1e3,), 1e3, {}, "its scales make a rescaling factor of 85333.3; it must be below 2^15"),
        ("rsqrt", (1e-12,), 1e-12, {}, "its scales make a rescaling factor of 1e+18; it must be below 2^30"),
        ("add", (1.0, 0.5), 1e-8, {"activation": "NONE"}, SUM),
        ("sub", (1.0, 0.5), 1e-8, {"activation": "NONE"}, SUM),
        ("relu6", (1e-9,), 1e-9, {}, "its output has scale 1e-09, at which its bound 6 does not fit 32 bits"),
        ("average_pool_2d", (1e-9,), 1e-9, {"padding": "SAME", "stride_h": 1, "stride_w": 1, "kernel_h": 1, "kernel_w": 1, "activation": "RELU6"}, "its output has scale 1e-09, at which its bound 6 does not fit 32 bits"),
        ("softmax", (1e-9,), 1 / 256, {"beta": 1.0}, "its output has scale=0.00390625 zp=0; LiteRT demands scale=0.00390625 zp=-128"),
    ],
)  # fmt: skip
def test_what_a_row_says(op: str, scales: tuple[float, ...], result: float, attrs: dict, words: str) -> None:
    assert reason(op, scales, result, **attrs) == words


def test_a_softmax_whose_differences_vanish() -> None:
    data, output = oracle.activation("x", (1, 4), 1e-9), oracle.activation("y", (1, 4), 1 / 256, -128)
    graph = oracle.graph_of([data], [Node("softmax", ("x",), ("y",), {"beta": 1.0})], [output])
    assert reject(graph, graph.nodes[0]) == (
        "beta 1 times the input's scale 1e-09 is too small for a fixed-point exponential; it must be above 2^-26"
    )


def fully_connected(scale: float, weights: np.ndarray) -> Graph:
    data, output = oracle.activation("x", (1, 64), scale), oracle.activation("y", (1, 2), 1.0)
    attrs = {"activation": "NONE", "keep_num_dims": False, "weights_format": "DEFAULT"}
    w = constant("w", weights, per_channel([1.0, 0.5], 0))
    return oracle.graph_of([data], [Node("fully_connected", ("x", "w"), ("y",), attrs)], [output, w])


def test_a_fully_connected_layer_whose_products_leave_32_bits() -> None:
    """LiteRT casts accumulator * factor, a double, to int32 before it clamps it."""
    weights = np.full((2, 64), 127, np.int8)
    graph = fully_connected(1040.0, weights)
    assert reject(graph, graph.nodes[0]) == (
        "its accumulator times its rescaling factor may be 2.15555e+09, which LiteRT casts to int32 as it is; "
        "it must stay below 2^31"
    )
    oracle.assert_bit_exact(fully_connected(1030.0, weights))


def test_a_transposed_convolution_and_its_factor() -> None:
    graph = random_graphs.single("transpose_conv", 0)
    node = next(node for node in graph.nodes if node.op == "transpose_conv")
    weights = graph.operand(node, 1)
    assert weights is not None and weights.quant is not None
    scaled = replace(weights, quant=QuantParams(tuple(1e20 for _ in weights.quant.scales), weights.quant.zero_points, weights.quant.axis))  # fmt: skip
    words = reject(replace(graph, tensors={**graph.tensors, weights.name: scaled}), node)
    assert words is not None and words.endswith("it must be below 2^30")


@pytest.mark.parametrize(
    ("op", "kernel", "words"),
    [
        ("max_pool_2d", 32767, None),
        ("max_pool_2d", 32768, "its kernel_h is 32768; it must be at most 32767"),
        ("average_pool_2d", 2896, None),
        ("average_pool_2d", 2897, "its window has 8392609 elements; at most 8388608"),
    ],
)
def test_a_window_that_no_kernel_takes(op: str, kernel: int, words: str | None) -> None:
    data, output = oracle.activation("x", (1, 4, 4, 8)), oracle.activation("y", (1, 4, 4, 8))
    attrs = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "kernel_h": kernel, "kernel_w": kernel, "activation": "NONE"}  # fmt: skip
    graph = oracle.graph_of([data], [Node(op, ("x",), ("y",), attrs)], [output])
    assert reject(graph, graph.nodes[0]) == words
    if words is None:
        oracle.assert_bit_exact(graph, (0,))


def test_a_softmax_of_a_single_number() -> None:
    data, output = oracle.activation("x", (), 0.1), oracle.activation("y", (), 1 / 256, -128)
    graph = oracle.graph_of([data], [Node("softmax", ("x",), ("y",), {"beta": 1.0})], [output])
    assert reject(graph, graph.nodes[0]) == "its input is a single number"
