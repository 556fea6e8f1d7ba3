# SPDX-License-Identifier: BSD-3-Clause
"""Tables: every entry, at many scales and zero points, against LiteRT's reference kernels."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from openneutron.compiler.select.tables import STORED, TABLES, tanhf
from openneutron.ir import Graph, Node, QuantParams, per_tensor
from openneutron.ops import BY_NAME, reject
from tests.runtime import element_calls
from tests.support import oracle

PAIRS = 250


def _quants(op: str, random: np.random.Generator) -> tuple[QuantParams, QuantParams]:
    """Scales over three orders of magnitude, any zero points; the output's fixed where LiteRT fixes it."""
    scales = np.exp(random.uniform(np.log(1e-3), np.log(1.5), 2))
    zero_points = random.integers(-128, 128, 2)
    if op == "neg":
        scales[1], zero_points = scales[0], max(zero_points[0], -127) * np.array([1, -1])
    if op in ("rsqrt", "sqrt") and random.random() < 0.5:
        zero_points[0] = -128
    fixed = BY_NAME[op].fixed_output
    result = per_tensor(*fixed) if fixed else per_tensor(float(scales[1]), int(zero_points[1]))
    return per_tensor(float(scales[0]), int(zero_points[0])), result


def _graph(op: str, quants: list[tuple[QuantParams, QuantParams]], attrs: list[dict[str, float]]) -> Graph:
    """A graph of many nodes beside each other, each on all 256 values."""
    inputs, nodes, others = [], [], []
    for i, ((source, result), own) in enumerate(zip(quants, attrs, strict=True)):
        inputs.append(oracle.activation(f"x{i}", (256,), source.scale, source.zero_point))
        others.append(oracle.activation(f"y{i}", (256,), result.scale, result.zero_point))
        nodes.append(Node(op, (f"x{i}",), (f"y{i}",), own))
    return oracle.graph_of(inputs, nodes, others, [tensor.name for tensor in others])


def _attributes(op: str, random: np.random.Generator) -> dict[str, float]:
    if op == "gelu":
        return {"approximate": bool(random.integers(2))}
    return {"alpha": float(np.float32(random.uniform(-1.5, 2.0)))} if op == "leaky_relu" else {}


def _values(op: str, source: QuantParams) -> np.ndarray:
    """Return all stored values; for roots, those that LiteRT does not refuse."""
    return np.maximum(STORED, source.zero_point) if op in ("rsqrt", "sqrt") else STORED


@pytest.mark.parametrize("op", sorted(TABLES))
def test_tables_are_what_litert_computes(op: str) -> None:
    random = np.random.default_rng(sorted(TABLES).index(op))
    quants = [_quants(op, random) for _ in range(PAIRS)]
    attrs = [_attributes(op, random) for _ in quants]
    graph = _graph(op, quants, attrs)
    taken = [reject(graph, node) is None for node in graph.nodes]
    quants, attrs = ([item for item, take in zip(items, taken, strict=True) if take] for items in (quants, attrs))
    assert len(quants) > PAIRS * 0.9
    graph = _graph(op, quants, attrs)
    values = [_values(op, source) for source, _ in quants]
    results = oracle.reference_outputs(graph, [value.astype(np.int8) for value in values])
    for (source, result), own, value, want in zip(quants, attrs, values, results, strict=True):
        got = TABLES[op](source, result, own)[value + 128]
        np.testing.assert_array_equal(got, want, f"{op} {source} -> {result} {own}")


def test_rsqrt_of_what_has_none_is_the_largest_value() -> None:
    stored = TABLES["rsqrt"](per_tensor(0.1, 5), per_tensor(0.02, -100), {})
    assert set(stored[: 5 + 128 + 1]) == {127}


def test_operators_say_which_scales_they_refuse() -> None:
    node = Node("neg", ("x",), ("y",))
    x, y = oracle.activation("x", (3,), 0.5, 3), oracle.activation("y", (3,), 0.5, 3)
    assert reject(oracle.graph_of([x], [node], [y]), node) == (
        f"its input has {x.quant}, its output {y.quant}; LiteRT turns the sign of stored values, which is right "
        "for the same scale and a zero point of the other sign alone"
    )
    node = Node("rsqrt", ("x",), ("y",))
    graph = oracle.graph_of([oracle.activation("x", (3,), 4.0)], [node], [oracle.activation("y", (3,), 1024.0)])
    assert reject(graph, node) == (
        "its output has scale 1024, its input 4; the root of the input's times the output's must be below 2048, "
        "or LiteRT shifts by more than 31 bits"
    )


def test_every_table_has_a_row_and_every_row_a_table() -> None:
    """``lookup`` brings its table along, and that of truth values is no int8 function."""
    assert {*TABLES, "lookup", "logical_not"} == {op.name for op in BY_NAME.values() if op.kernels[0] == "lookup_s8"}


@pytest.mark.parametrize("shape", [(7,), (2, 5), (1, 6, 5, 3), (2, 4, 4, 40), (2, 1, 3, 2, 5)])
def test_bit_exact_in_any_windows(shape: tuple[int, ...]) -> None:
    for seed in range(12):
        source, result = oracle.activation("x", shape, 0.04, seed), oracle.activation("y", shape, 0.03, -seed)
        graph = oracle.graph_of([source], [Node("hard_swish", ("x",), ("y",))], [result])
        element_calls.assert_bit_exact(graph, seed)


def test_tanhf_is_near_the_real_one_and_odd() -> None:
    values = np.concatenate([np.linspace(-25, 25, 20_001), np.geomspace(1e-20, 1, 1000)]).astype(np.float32)
    got = tanhf(values)
    np.testing.assert_allclose(got, np.tanh(values.astype(np.float64)), rtol=3e-7)
    np.testing.assert_array_equal(got, -tanhf(-values))


def test_tanhf_is_the_c_library_s_where_that_is_fdlibm_s() -> None:
    """glibc took another tanhf in release 2.41; before it, the table must be what LiteRT makes with it."""
    library = ctypes.CDLL("libm.so.6")
    library.tanhf.restype, library.tanhf.argtypes = ctypes.c_float, [ctypes.c_float]
    version = ctypes.CDLL("libc.so.6").gnu_get_libc_version
    version.restype = ctypes.c_char_p
    values = np.random.default_rng(1).uniform(-12, 12, 20_000).astype(np.float32)
    theirs = np.array([library.tanhf(float(value)) for value in values], np.float32)
    if tuple(map(int, version().decode().split("."))) < (2, 41):
        np.testing.assert_array_equal(tanhf(values), theirs)
    else:
        np.testing.assert_allclose(tanhf(values), theirs, rtol=3e-7)


def test_hard_swish_says_which_scales_litert_refuses() -> None:
    source, result = oracle.activation("x", (4,), 1.28), oracle.activation("y", (4,), 0.01)
    graph = oracle.graph_of([source], [Node("hard_swish", ("x",), ("y",))], [result])
    assert reject(graph, graph.nodes[0]) == (
        "its output has scale 0.01, its input 1.28; LiteRT demands an output scale above 1/128 of the input's"
    )
