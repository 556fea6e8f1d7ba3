# SPDX-License-Identifier: BSD-3-Clause
"""Functions of one operand on int16 activations: the kernels against LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openneutron import ops
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.legalize.partition import partition
from openneutron.ir import Graph, Node, per_tensor
from openneutron.ir.graph import AttrValue, DType, Tensor
from openneutron.ops import BY_NAME
from tests.runtime import element_calls
from tests.support import oracle

pytestmark = pytest.mark.int16

PROPERTY = settings(
    max_examples=120, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
LENGTHS = (1, 3, 8, 17, 40, 67)


def _shape(draw: st.DrawFn) -> tuple[int, ...]:
    return (*draw(st.lists(st.integers(1, 4), min_size=0, max_size=3)), draw(st.sampled_from(LENGTHS)))


def _scale(draw: st.DrawFn, low: float = 1e-5, high: float = 1e-1) -> float:
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    return float(np.float32(np.exp(random.uniform(np.log(low), np.log(high)))))


@st.composite
def conversions(draw: st.DrawFn) -> Graph:
    """QUANTIZE between int8 and int16 and from int16 to int16, with factors from 1e-5 to 2^15."""
    types = draw(st.sampled_from(((DType.INT8, DType.INT16), (DType.INT16, DType.INT8), (DType.INT16, DType.INT16))))
    shape, scale = _shape(draw), _scale(draw)
    other = draw(st.sampled_from((scale, scale / 2, scale * 256, scale / 32767, scale / 100, scale * 3)))
    zeros = [draw(st.integers(-128, 127)) if dtype is DType.INT8 else 0 for dtype in types]
    source, result = (
        Tensor(name, shape, dtype, per_tensor(step, zero))
        for name, dtype, step, zero in zip("xy", types, (scale, other), zeros, strict=True)
    )
    return oracle.graph_of([source], [Node("quantize", ("x",), ("y",))], [result])


@PROPERTY
@given(conversions(), st.integers(0, 2**31))
def test_conversions_are_bit_exact_in_any_windows(graph: Graph, seed: int) -> None:
    if graph["x"].dtype is graph["y"].dtype and graph["x"].quant == graph["y"].quant:
        graph = oracle.graph_of(
            [oracle.wide_activation("x", graph["x"].shape, 1e-3)],
            graph.nodes,
            [oracle.wide_activation("y", graph["x"].shape, 1.7e-3)],
        )
    element_calls.assert_bit_exact(graph, seed)


@st.composite
def functions(draw: st.DrawFn) -> Graph:
    """Every function of one operand that LiteRT has for int16."""
    op = draw(st.sampled_from(tuple(FUNCTIONS)))
    scale = _scale(draw, 1e-6, FUNCTIONS[op])
    if op in ("tanh", "logistic"):
        scale = draw(st.sampled_from((scale, 2.0**-12, 2.0**-11, 2.0**-12 * 1.0006, 5.3)))
    attrs: dict[str, AttrValue] = {}
    if op == "leaky_relu":
        attrs["alpha"] = draw(st.sampled_from((0.0, 0.01, 0.5, 0.3, 0.25, 1.5)))
    if op == "gelu":
        attrs["approximate"] = draw(st.booleans())
    if op == "softmax":
        attrs["beta"] = draw(st.sampled_from((1.0, 0.125, 3.0)))
    fixed = BY_NAME[op].fixed_output is not None
    result = 2.0**-15 if fixed else draw(st.sampled_from((scale, _scale(draw, 1e-5, 1e-3), scale / 4)))
    shape = _shape(draw)
    return oracle.graph_of(
        [oracle.wide_activation("x", shape, scale)],
        [Node(op, ("x",), ("y",), attrs)],
        [oracle.wide_activation("y", shape, result)],
    )


FUNCTIONS = {
    **dict.fromkeys(("relu", "relu6", "leaky_relu", "abs", "log", "gelu"), 1e-2),
    **dict.fromkeys(("tanh", "logistic", "softmax"), 1.0),
    "exp": 1e-3,
}
"""The functions, and the largest input scale of each in these tests."""


@PROPERTY
@given(functions(), st.integers(0, 2**31))
def test_functions_are_bit_exact_in_any_windows(graph: Graph, seed: int) -> None:
    element_calls.assert_bit_exact(graph, seed)


@pytest.mark.parametrize("op", ["logistic", "tanh"])
@pytest.mark.parametrize("scale", [2.0**-12, 4 / 12288, 1e-2])
def test_every_value_of_a_sigmoid_is_bit_exact(op: str, scale: float) -> None:
    every = np.arange(-(2**15), 2**15).astype(np.int16).reshape(1, 256, 256)
    _assert_exact_on(op, every, scale, 2.0**-15)


@pytest.mark.parametrize("op", ["exp", "log", "gelu"])
@pytest.mark.parametrize("scale", [2e-5, 7.3e-5, 3e-4])
def test_every_value_of_a_table_is_bit_exact(op: str, scale: float) -> None:
    every = np.arange(-(2**15), 2**15).astype(np.int16).reshape(1, 256, 256)
    _assert_exact_on(op, every, scale, scale * 1.1, {"approximate": False} if op == "gelu" else {})


def test_roots_are_bit_exact_where_there_are_any() -> None:
    values = np.arange(2**15).astype(np.int16).reshape(1, 128, 256)
    for scale, result in ((1e-3, 1e-2), (1e-5, 1e-3), (0.3, 1e-4)):
        _assert_exact_on("rsqrt", values, scale, result)


def _assert_exact_on(
    op: str, values: np.ndarray, scale: float, result: float, attrs: Mapping[str, AttrValue] = MappingProxyType({})
) -> None:
    source = oracle.wide_activation("x", values.shape, scale)
    node = Node(op, ("x",), ("y",), attrs)
    graph = oracle.graph_of([source], [node], [oracle.wide_activation("y", values.shape, result)])
    (want,) = oracle.reference_outputs(graph, [values])
    (got,) = oracle.simulated_outputs(oracle.compile_graph(graph, oracle.TARGET), [values])
    np.testing.assert_array_equal(got, want)


def _reason(op: str, scale: float, result: float, shape: tuple[int, ...] = (1, 8), **attrs: AttrValue) -> str | None:
    tensors = [oracle.wide_activation(name, shape, step) for name, step in zip("xy", (scale, result), strict=True)]
    graph = oracle.graph_of(tensors[:1], [Node(op, ("x",), ("y",), attrs)], tensors[1:])
    return ops.reject(graph, graph.nodes[0])


def test_what_litert_cannot_compute_is_refused() -> None:
    assert _reason("tanh", 1e-3, 2.0**-14) == (
        "its output has scale=6.10352e-05 zp=0; LiteRT demands scale=3.05176e-05 zp=0"
    )
    assert _reason("logistic", 6.0, 2.0**-15) == (
        "its input has scale 6; it must be below 16/3, or LiteRT's product overflows 32 bits"
    )
    assert _reason("exp", 0.01, 1.0) == (
        "its output has scale 1, its input 0.01; its largest result over the output's scale is exp(327.68), and LiteRT's "
        "float32 holds exp(87)"
    )
    assert _reason("softmax", 6.0, 2.0**-15, beta=1.0) == (
        "beta 1 times the input's scale 6 must be at least 0 and below 5"
    )
    assert _reason("softmax", 1e-3, 2.0**-15, (1, 65537), beta=1.0) == (
        "it adds 65537 exponentials; LiteRT's sum holds 65536"
    )


def _quantize(source: Tensor, result: Tensor) -> Graph:
    return oracle.graph_of([source], [Node("quantize", (source.name,), (result.name,))], [result])


def test_uint8_becomes_int16_by_way_of_int8() -> None:
    stored = Tensor("x", (1, 5, 6, 7), DType.UINT8, per_tensor(0.02, 77))
    graph = _quantize(stored, oracle.wide_activation("y", (1, 5, 6, 7), 1e-3))
    (part,) = partition(graph).partitions
    assert [node.op for node in part.graph.nodes] == ["quantize", "quantize"]
    inputs = [np.random.default_rng(3).integers(0, 256, stored.shape, np.uint8)]
    (want,) = oracle.reference_outputs(graph, inputs)
    (got,) = oracle.simulated_outputs(oracle.compile_graph(part.graph, oracle.TARGET), inputs)
    np.testing.assert_array_equal(got, want)


def test_int16_does_not_become_uint8() -> None:
    graph = _quantize(oracle.wide_activation("x", (1, 8)), Tensor("y", (1, 8), DType.UINT8, per_tensor(0.1, 3)))
    reason = "input 'x' is int16, its output uint8; LiteRT has QUANTIZE from int16 to int8 and int16 alone"
    assert ops.reject(graph, graph.nodes[0]) == reason
    assert [item.reason for item in partition(graph).on_cpu] == [reason]


@pytest.mark.parametrize("scales", [(1.0, 2.0**-15), (1e-2, 1e-7)])
def test_a_factor_that_overflows_is_refused(scales: tuple[float, float]) -> None:
    source, result = (oracle.wide_activation(name, (1, 8), scale) for name, scale in zip("xy", scales, strict=True))
    graph = _quantize(source, result)
    factor = f"{scales[0] / scales[1]:.6g}" if scales[0] == 1 else "100000"
    assert ops.reject(graph, graph.nodes[0]) == (
        f"its scales make a rescaling factor of {factor}; it must be below 2^15"
    )


def test_a_cascade_of_both_types_fits_a_budget() -> None:
    shape = (1, 24, 10, 8)
    tensors = [
        oracle.activation("a", shape, 0.05, 3),
        oracle.wide_activation("b", shape, 2e-4),
        oracle.wide_activation("c", shape, 3e-4),
        oracle.wide_activation("d", shape, 5e-4),
        oracle.activation("e", shape, 0.07, -9),
    ]
    nodes = [
        Node("quantize", ("a",), ("b",)),
        Node("quantize", ("b",), ("c",)),
        Node("add", ("b", "c"), ("d",), {"activation": "RELU", "pot_scale_int16": False}),
        Node("quantize", ("d",), ("e",)),
    ]
    graph = oracle.graph_of(tensors[:1], nodes, tensors[1:])
    whole = oracle.assert_bit_exact(graph).report.sram_bytes
    least = oracle.least_budget(graph)
    assert least < whole
    for budget in (least, (least + whole) // 2):
        oracle.assert_bit_exact(graph, (1,), CompileOptions(sram_budget=budget))


def assert_every_value_is_exact(op: str, scale: float, result: float, **attrs: AttrValue) -> None:
    x, y = oracle.wide_activation("x", (2**16,), scale), oracle.wide_activation("y", (2**16,), result)
    graph = oracle.graph_of([x], [Node(op, ("x",), ("y",), attrs)], [y])
    inputs = [np.arange(-(2**15), 2**15).astype(np.int16)]
    (got,) = oracle.simulated_outputs(compile_graph(graph, oracle.TARGET), inputs)
    np.testing.assert_array_equal(got, oracle.reference_outputs(graph, inputs)[0])


@pytest.mark.parametrize("scale", [1e-4, 3e-3, 0.25, 7.0])
def test_every_negative_is_litert_s(scale: float) -> None:
    assert_every_value_is_exact("neg", scale, scale)


@pytest.mark.parametrize("seed", range(6))
def test_every_value_of_a_negative_slope_is_litert_s(seed: int) -> None:
    random = np.random.default_rng(seed)
    scale = float(random.uniform(1e-4, 1e-2))
    alpha = -float(np.float32(random.choice([0.25, 0.5, 1.0, 2.0]) if seed % 2 else random.uniform(0.01, 3.0)))
    result = scale * (2.0 if seed % 2 else float(np.exp(random.uniform(-2, 3))))
    assert_every_value_is_exact("leaky_relu", scale, result, alpha=alpha)
