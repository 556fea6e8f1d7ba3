# SPDX-License-Identifier: BSD-3-Clause
"""Normalizations: the kernels against their definition in Python's integers, and that against float."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron import ops
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.cost.cycles import call_cost
from openneutron.compiler.select.select import select_node
from openneutron.ir import DType, Graph, Node, Tensor, constant, per_tensor
from tests.runtime import element_calls
from tests.support import normalized, oracle

SHAPES = {
    "layer_norm": ((7,), (3, 1), (2, 5, 40), (2, 4, 3, 12)),
    "group_norm": ((2, 4, 3, 12), (1, 1, 1, 2), (1, 9, 7, 4)),
}


def graph_of(
    op: str, shape: tuple[int, ...], seed: int, scale: float = 0.04, wide: bool = False, epsilon: float = 1e-5
) -> Graph:
    """Return a graph of one normalization with random gain and bias."""
    random = np.random.default_rng(seed)
    dtype = DType.INT16 if wide else DType.INT8
    quants = (
        [per_tensor(scale / 256, 0)] * 2 if wide else [per_tensor(scale, int(random.integers(-128, 128))) for _ in "xy"]
    )
    channels = shape[-1]
    gain, bias = (
        constant(name, random.normal(middle, 0.3, channels).astype(np.float32)) for name, middle in (("g", 1), ("b", 0))
    )
    last = (
        {"centred": seed % 3 > 0} if op == "layer_norm" else {"groups": (1, channels, max(1, channels // 4))[seed % 3]}
    )
    x, y = (Tensor(name, shape, dtype, quant) for name, quant in zip("xy", quants, strict=True))
    return oracle.graph_of([x], [Node(op, ("x", "g", "b"), ("y",), {"epsilon": epsilon, **last})], [y, gain, bias])


@pytest.mark.parametrize("wide", [False, pytest.param(True, marks=pytest.mark.int16)], ids=["int8", "int16"])
@pytest.mark.parametrize(("op", "shape"), [(op, shape) for op, shapes in SHAPES.items() for shape in shapes])
def test_the_kernel_is_bit_exact(op: str, shape: tuple[int, ...], wide: bool) -> None:
    for seed in range(6):
        graph = graph_of(op, shape, seed, scale=(0.04, 1e-4, 30)[seed % 3], wide=wide)
        assert ops.reject(graph, graph.nodes[0]) is None
        oracle.assert_bit_exact(graph, (seed,))


@pytest.mark.parametrize(("op", "shape"), [(op, shape) for op, shapes in SHAPES.items() for shape in shapes[-2:]])
def test_any_window_is_bit_exact(op: str, shape: tuple[int, ...]) -> None:
    for seed in range(3):
        element_calls.assert_bit_exact(graph_of(op, shape, seed), seed)


@pytest.mark.parametrize("op", sorted(SHAPES))
def test_nearly_every_value_is_the_nearest_to_float(op: str) -> None:
    """A result is the float function of the dequantized input, rounded once: 99.9 % are within 0.51 steps."""
    apart = []
    for seed in range(6):
        graph = graph_of(op, (1, 8, 8, 96), seed)
        (stored,) = oracle.random_inputs(graph, seed)
        stored = np.clip(np.random.default_rng(seed).normal(10, 8 + 8 * seed, stored.shape), -128, 127).astype(np.int8)
        (got,) = oracle.simulated_outputs(compile_graph(graph, oracle.TARGET), [stored])
        apart.append(np.abs(got - normalized.in_float(graph, graph.nodes[0], stored)).reshape(-1))
    found = np.concatenate(apart)
    assert found.max() <= 1
    assert (found <= 0.51).mean() >= 0.999


def test_extreme_lines() -> None:
    """Equal elements, two ends, one element apart, and the most elements that share statistics."""
    count = 2**15
    lines = np.full((5, count), 3, np.int8)
    lines[1, ::2], lines[1, 1::2] = -128, 127
    lines[2, 5] = 4
    lines[3] = -128
    lines[4, 0] = -128
    for epsilon, seed, size in ((0.0, 1, 500), (1e-5, 0, count), (10.0, 1, 500)):
        given = lines[: 5 if size < count else 2, :size]
        graph = graph_of("layer_norm", given.shape, seed, epsilon=epsilon)
        (got,) = oracle.simulated_outputs(compile_graph(graph, oracle.TARGET), [given])
        np.testing.assert_array_equal(got, normalized.results(graph, graph.nodes[0], given))


def test_stripes_within_a_budget() -> None:
    """Lines are independent of each other, so a chain with a layer norm runs row by row in less memory."""
    x, y, z = (oracle.activation(name, (1, 64, 4, 32), 0.04) for name in "xyz")
    attrs = {"epsilon": 1e-5, "centred": True}
    nodes = [Node("layer_norm", ("x",), ("y",), attrs), Node("layer_norm", ("y",), ("z",), attrs)]
    graph = oracle.graph_of([x], nodes, [y, z], ["z"])
    options = CompileOptions(sram_budget=oracle.least_budget(graph, io="caller"), io_place="caller", check=True)
    inputs = oracle.random_inputs(graph, 1)
    whole = compile_graph(graph, oracle.TARGET, CompileOptions(io_place="caller"))
    made = oracle.assert_fits_and_is_exact(graph, options, inputs, oracle.reference_outputs(graph, inputs))
    assert made.report.arena_bytes < whole.report.arena_bytes / 4


@pytest.mark.parametrize(
    ("op", "attrs", "reason"),
    [
        ("layer_norm", {"epsilon": -1.0}, "its epsilon is -1; it must be at least 0 and finite"),
        (
            "layer_norm",
            {"epsilon": 1e18},
            "its epsilon 1e+18 is too large for the input's scale 0.04; their quotient has at most 62 bits",
        ),
        ("group_norm", {"groups": 5}, "it has 5 groups for 12 channels; whole groups are needed"),
    ],
)
def test_limits(op: str, attrs: dict[str, float], reason: str) -> None:
    graph = graph_of(op, (2, 4, 3, 12), 1)
    (node,) = graph.nodes
    assert ops.reject(graph, Node(op, node.inputs, node.outputs, {**node.attrs, **attrs})) == reason


def test_more_elements_than_share_statistics_are_refused() -> None:
    graph = graph_of("layer_norm", (1, 2**15 + 1), 1)
    assert ops.reject(graph, graph.nodes[0]) == "it normalizes 32769 elements at once; at most 32768 share statistics"


def test_all_pipelines_share_the_functions_of_lines() -> None:
    """Values of a softmax, channels and roots of a normalization: stripes take at least their share of the whole."""
    for op in ("softmax", "layer_norm"):
        attrs = {"beta": 1.0} if op == "softmax" else {"epsilon": 1e-5, "centred": True}
        shape, quant = (1, 10, 3, 20), per_tensor(1 / 256, -128)
        graph = oracle.graph_of(
            [oracle.activation("x", shape)], [Node(op, ("x",), ("y",), attrs)], [Tensor("y", shape, DType.INT8, quant)]
        )
        (call,) = select_node(graph, graph.nodes[0])
        whole = call_cost(call, oracle.TARGET).compute_cycles
        # 600 values, 32 cycles each; 3 steps of 30 lines of groups of 20 channels, and the roots of 30 lines.
        values, groups, roots = (-(-count // oracle.TARGET.all_pipelines) for count in (600, 20, 30))
        assert whole == {"softmax": values * 32, "layer_norm": 3 * 30 * groups + roots * 32}[op]
        assert sum(call_cost(call, oracle.TARGET, rows).compute_cycles for rows in (4, 4, 2)) >= whole
