# SPDX-License-Identifier: BSD-3-Clause
"""Activations and requantizations that the call before them does along, and those that no call can."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron.compiler.rewrite.fold import with_table
from openneutron.compiler.select.rules.conv import conv_2d
from openneutron.ir import DType, Graph, Node, Tensor, constant, per_channel, per_tensor
from tests.support import oracle, random_graphs

SCALE, ZERO = 0.1, 7
PRODUCERS = ("conv_2d", "depthwise_conv_2d", "fully_connected", "add", "mul", "average_pool_2d", "max_pool_2d", "mean")
ACTIVATIONS = ("relu", "relu6", "relu_n1_to_1", "quantize", "relu_0_to_1")


def behind(op: str, then: str, scale: float, zero: int, seed: int = 0) -> Graph:
    """A random node of ``op``, and one of ``then`` behind it that has another zero point, or another scale too."""
    graph = random_graphs.single(op, seed)
    last = graph[graph.outputs[0]]
    assert last.quant is not None
    ends = Tensor("end", last.shape, DType.INT8, per_tensor(float(last.quant.scale) * scale, zero))
    return Graph(
        "main",
        {**graph.tensors, "end": ends},
        (*graph.nodes, Node(then, (last.name,), ("end",), {})),
        graph.inputs,
        ("end",),
    )


@pytest.mark.parametrize("op", PRODUCERS)
def test_a_shift_and_a_clamp_cost_no_call(op: str) -> None:
    """The operators that keep the scale, except pools: these keep the zero point of their input, so that they take only a clamp."""
    for seed, then in enumerate(ACTIVATIONS):
        graph = random_graphs.single(op, seed)
        zero = graph[graph.outputs[0]].quant.zero_point
        moved = zero if "pool" in op else (zero + 9 if zero < 100 else zero - 9)
        plain, more = oracle.assert_bit_exact(graph), oracle.assert_bit_exact(behind(op, then, 1.0, int(moved), seed))
        assert oracle.kernels_of(more) == oracle.kernels_of(plain), then


@pytest.mark.parametrize("op", PRODUCERS)
def test_anything_behind_a_call_that_clamps_keeps_its_bytes(op: str) -> None:
    random = np.random.default_rng(5)
    for seed in range(12):
        then = str(random.choice([*ACTIVATIONS, "logistic", "tanh"]))
        quant = {"logistic": (1 / 256, -128), "tanh": (1 / 128, 0)}.get(then)
        graph = behind(op, then, float(random.choice([1.0, 1.0, 0.5, 1.7])), int(random.integers(-128, 128)), seed)
        if quant is not None:
            ends = Tensor("end", graph["end"].shape, DType.INT8, per_tensor(*quant))
            graph = Graph("main", {**graph.tensors, "end": ends}, graph.nodes, graph.inputs, graph.outputs)
        oracle.assert_bit_exact(graph)


def convolution(scale: float, zero: int, requantized: bool) -> Graph:
    """A pointwise convolution to (scale, zero), by way of another quantization if ``requantized``."""
    between = oracle.activation("c", (1, 16, 16, 8), SCALE, ZERO)
    ends = oracle.activation("y", (1, 16, 16, 8), scale, zero)
    weights = np.random.default_rng(1).integers(-127, 128, (8, 1, 1, 8)).astype(np.int8)
    scales = np.full(8, 0.002, np.float32)
    attrs = {"padding": "VALID", "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "activation": "NONE"}
    made = Node("conv_2d", ("x", "w", "b"), ("c" if requantized else "y",), attrs)
    return oracle.graph_of(
        [oracle.activation("x", (1, 16, 16, 8))],
        [made, *([Node("quantize", ("c",), ("y",), {})] if requantized else [])],
        [
            constant("w", weights, per_channel(scales, 0)),
            constant("b", np.zeros(8, np.int32), per_channel(scales * np.float32(0.05), 0)),
            *([between] if requantized else []),
            ends,
        ],
    )


def test_another_scale_is_rounded_twice_and_stays() -> None:
    """LiteRT's bytes of a convolution and QUANTIZE differ from those of a convolution straight to the second scale."""
    apart, direct = convolution(0.17, -5, True), convolution(0.17, -5, False)
    assert oracle.kernels_of(oracle.assert_bit_exact(apart)) == ["conv_2d_1x1_s8", "lookup_s8"]
    (inputs,) = (oracle.random_inputs(apart, 0),)
    (twice,), (once,) = oracle.reference_outputs(apart, inputs), oracle.reference_outputs(direct, inputs)
    difference = np.abs(twice.astype(int) - once)
    assert difference.max() == 1 and 0.02 < difference.mean() < 0.3
    shifted = oracle.assert_bit_exact(convolution(SCALE, ZERO + 20, True))
    assert oracle.kernels_of(shifted) == ["conv_2d_1x1_s8"]


def test_what_a_table_may_be() -> None:
    graph = convolution(SCALE, ZERO, False)
    (call,) = conv_2d(graph, graph.nodes[0])
    stored = np.arange(-128, 128)

    def taken(values: np.ndarray) -> tuple[int, int, int] | None:
        params = with_table(call, np.clip(values, -128, 127).astype(np.int8))
        return None if params is None else (params["output_zero_point"], params["clamp_min"], params["clamp_max"])

    assert taken(stored) == (ZERO, -128, 127)
    assert taken(stored + 30) == (ZERO + 30, -98, 127)
    assert taken(np.maximum(stored, -20) - 3) == (ZERO - 3, -23, 124)
    assert taken(np.full(256, 9)) == (ZERO, 9, 9)
    assert taken(np.clip(stored, 5, 6)) == (ZERO, 5, 6)
    assert taken(-stored) is None
    assert taken(stored // 2) is None
    assert taken(np.where(stored == 3, 4, stored)) is None
    assert taken(stored + 125) is None, "a zero point of 132"
