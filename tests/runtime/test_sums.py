# SPDX-License-Identifier: BSD-3-Clause
"""SUM of int8 and int16: every possible sum against LiteRT's optimized kernel, which multiplies in float32."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openneutron.compiler import compile_graph
from openneutron.ir import DType, Graph, Node, Tensor, constant, per_tensor
from openneutron.ops import reject
from openneutron.ops.rescaling import STORED_BOUNDS
from tests.runtime import element_calls
from tests.support import oracle

PROPERTY = settings(
    max_examples=25, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
Quantization = tuple[float, int]
"""A scale and a zero point."""


def sum_of(
    shape: tuple[int, ...],
    axes: list[int],
    source: Quantization,
    result: Quantization,
    dtype: DType = DType.INT8,
    keep: bool = False,
) -> Graph:
    named = {axis % len(shape) for axis in axes}
    kept = tuple(1 if axis in named else extent for axis, extent in enumerate(shape) if keep or axis not in named)
    tensors = [Tensor("x", shape, dtype, per_tensor(*source)), Tensor("y", kept, dtype, per_tensor(*result))]
    node = Node("sum", ("x", "axes"), ("y",), {"keep_dims": keep})
    return oracle.graph_of(tensors[:1], [node], [tensors[1], constant("axes", np.array(axes, np.int32))])


def lines_with(sums: npt.NDArray[np.int64], count: int, dtype: DType) -> npt.NDArray[np.signedinteger]:
    """Return lines of ``count`` values that have these sums."""
    least, more = np.divmod(sums, count)
    return (least[:, None] + (np.arange(count) < more[:, None])).astype(dtype.numpy)


@st.composite
def sums(draw: st.DrawFn) -> Graph:
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 5, 11]), min_size=1, max_size=4)))
    axes = draw(st.lists(st.integers(-len(shape), len(shape) - 1), max_size=len(shape), unique=True))
    dtype, keep = draw(st.sampled_from(oracle.data_types())), draw(st.booleans())
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    zero_points = random.integers(-128, 128, 2).tolist() if dtype is DType.INT8 else [0, 0]
    scale = float(random.uniform(1e-3, 0.1))
    result = float(np.float32(scale * np.exp(random.uniform(-1, 5))))
    return sum_of(shape, axes, (scale, zero_points[0]), (result, zero_points[1]), dtype, keep)


@PROPERTY
@given(sums(), st.integers(0, 2**31))
def test_sums_are_bit_exact_in_any_windows(graph: Graph, seed: int) -> None:
    element_calls.assert_bit_exact(graph, seed)


def assert_same(lines: npt.NDArray[np.signedinteger], source: Quantization, result: Quantization, dtype: DType) -> None:
    """Compare the sums of lines with LiteRT's."""
    for part in oracle.in_memory(lines):
        graph = sum_of(part.shape, [1], source, result, dtype)
        compiled = compile_graph(graph, oracle.TARGET)
        (got,), (want,) = oracle.simulated_outputs(compiled, [part]), oracle.reference_outputs(graph, [part])
        np.testing.assert_array_equal(got, want, f"{part.shape}, {source} to {result}")


def assert_every_sum_is_exact(
    count: int, source: Quantization, result: Quantization, dtype: DType = DType.INT8
) -> None:
    """Compare all sums that ``count`` values can have, or 5000 of more than 15000."""
    low, high = STORED_BOUNDS[dtype]
    every = (high - low) * count
    possible = np.arange(low * count, high * count + 1, 1 if every <= 15000 else every // 5000)
    assert_same(lines_with(possible, count, dtype), source, result, dtype)


@pytest.mark.parametrize(
    ("count", "source", "result"),
    [
        (16, (0.039235495, -96), (0.058305245, -14)),  # the sum -1403 is 75, in exact arithmetic 76
        (16, (0.05, 0), (0.1, 0)),  # halves
        (49, (0.05, -128), (0.05, -128)),
        (300, (0.02, 100), (1.7, -5)),
    ],
)
def test_every_sum_of_int8_is_litert_s(count: int, source: Quantization, result: Quantization) -> None:
    assert_every_sum_is_exact(count, source, result)


@pytest.mark.parametrize(
    ("seed", "dtype"),
    [
        *((seed, DType.INT8) for seed in range(0, 12, 2)),
        *(pytest.param(seed, DType.INT16, marks=pytest.mark.int16) for seed in range(1, 12, 2)),
    ],
)
def test_every_sum_of_random_scales_is_litert_s(seed: int, dtype: DType) -> None:
    random = np.random.default_rng(seed)
    count, scale = int(random.choice([2, 16, 49])), float(random.uniform(0.01, 0.1))
    result = scale * float(np.exp(random.uniform(-1, np.log(3 * count))))
    points = random.integers(-128, 128, 2).tolist() if dtype is DType.INT8 else [0, 0]
    assert_every_sum_is_exact(count, (scale, points[0]), (result, points[1]), dtype)


def test_sums_of_many_values_are_litert_s() -> None:
    """Sums beyond the 24 bits of a float32 are rounded before the product."""
    random = np.random.default_rng(0)
    for dtype in oracle.data_types():
        count = {DType.INT8: 300_001, DType.INT16: 65534}[dtype]
        low, high = STORED_BOUNDS[dtype]
        possible = random.integers(low * count, high * count, 8)
        points = (77, -3) if dtype is DType.INT8 else (0, 0)
        assert_same(lines_with(possible, count, dtype), (0.05, points[0]), (0.051 * count, points[1]), dtype)


def test_sums_over_every_other_axis_are_litert_s() -> None:
    for dtype in oracle.data_types():
        graph = sum_of((3, 2, 4, 3, 5), [0, 2, -1], (0.05, 0), (0.3, 0), dtype)
        compiled = oracle.assert_bit_exact(graph, (0,))
        assert oracle.kernels_of(compiled)[-1].split("_")[0] == "sum"


@pytest.mark.parametrize(
    ("shape", "axes", "scales", "dtype", "reason"),
    [
        (
            (2, 16),
            [1],
            (1.0, 2.0**-21),
            DType.INT8,
            "its scales make a sum of up to 4.29497e+09 steps, which LiteRT casts to 32 bits; it must be below 2^31",
        ),
        ((1, 65535), [1], (1e-3, 1.0), DType.INT16, "it adds 65535 values to one; at most 65534"),
    ],
)
def test_other_sums_are_refused(
    shape: tuple[int, ...], axes: list[int], scales: tuple[float, float], dtype: DType, reason: str
) -> None:
    graph = sum_of(shape, axes, (scales[0], 0), (scales[1], 0), dtype)
    assert reject(graph, graph.nodes[0]) == reason
