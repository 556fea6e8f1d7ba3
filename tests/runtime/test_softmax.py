# SPDX-License-Identifier: BSD-3-Clause
"""Softmax: the kernel against LiteRT's reference kernel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openneutron.compiler.select.rules.reductions import exponentials_of_differences
from openneutron.ir import Graph, Node
from openneutron.ops import reject
from tests.runtime import element_calls
from tests.support import oracle

PROPERTY = settings(
    max_examples=100, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


def softmax_graph(shape: tuple[int, ...], scale: float, zero_point: int, beta: float) -> Graph:
    node = Node("softmax", ("x",), ("y",), {"beta": beta})
    result = oracle.activation("y", shape, 1 / 256, -128)
    return oracle.graph_of([oracle.activation("x", shape, scale, zero_point)], [node], [result])


def rescaled_graph(shape: tuple[int, ...], scale: float, result_scale: float, zero_point: int = -128) -> Graph:
    node = Node("softmax_rescaled", ("x",), ("y",), {"beta": 1.0})
    result = oracle.activation("y", shape, result_scale, zero_point)
    return oracle.graph_of([oracle.activation("x", shape, scale, 3)], [node], [result])


@st.composite
def rescaled(draw: st.DrawFn) -> Graph:
    shape = (*draw(st.lists(st.integers(1, 3), min_size=0, max_size=3)), draw(st.sampled_from([1, 2, 12, 300, 1024])))
    scale = float(np.exp(draw(st.floats(np.log(1e-4), np.log(20.0)))))
    result_scale = float(np.exp2(draw(st.floats(-24.0, 0.0))))
    return rescaled_graph(shape, scale, result_scale, draw(st.sampled_from([-128, -128, 0, 127])))


@st.composite
def softmaxes(draw: st.DrawFn) -> Graph:
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=0, max_size=3)))
    shape = (*shape, draw(st.sampled_from([1, 2, 3, 10, 12, 100, 257])))
    scale = float(np.exp(draw(st.floats(np.log(1e-4), np.log(20.0)))))
    return softmax_graph(shape, scale, draw(st.integers(-128, 127)), draw(st.sampled_from([1.0, 0.5, 0.1, 3.0])))


@PROPERTY
@given(softmaxes(), st.integers(0, 2**31))
def test_bit_exact_in_any_windows(graph: Graph, seed: int) -> None:
    element_calls.assert_bit_exact(graph, seed)


@PROPERTY
@given(rescaled(), st.integers(0, 2**31))
def test_with_a_scale_of_its_own_bit_exact_in_any_windows(graph: Graph, seed: int) -> None:
    element_calls.assert_bit_exact(graph, seed)


@pytest.mark.parametrize("count", [512, 1024, 4095])
def test_many_equal_inputs_with_a_scale_of_its_own_keep_their_values(count: int) -> None:
    graph = rescaled_graph((1, count), 0.1, 1 / count / 100)
    inputs = [np.full((1, count), 127, np.int8)]
    result = oracle.simulated_outputs(oracle.compile_graph(graph, oracle.TARGET), inputs)[0]
    np.testing.assert_array_equal(result, oracle.reference_outputs(graph, inputs)[0])
    np.testing.assert_allclose(result + 128.0, 100, atol=1)


def test_limits_of_a_scale_of_its_own() -> None:
    def reason(graph: Graph) -> str | None:
        return reject(graph, graph.nodes[0])

    assert reason(rescaled_graph((1, 4095), 0.1, 2.0**-24)) is None
    assert reason(rescaled_graph((1, 4096), 0.1, 2.0**-24)) == "it adds 4096 exponentials; LiteRT's sum holds 4095"
    assert reason(rescaled_graph((1, 9), 0.1, 2.0**-25)) == ("its output's scale is 2.98023e-08; it must be 2^-24 to 1")


@pytest.mark.parametrize("count", [1, 2, 3, 100, 255, 256, 257, 510, 511])
def test_equal_inputs(count: int) -> None:
    graph = softmax_graph((1, count), 0.1, 0, 1.0)
    inputs = [np.full((1, count), -7, np.int8)]
    compiled = oracle.compile_graph(graph, oracle.TARGET)
    np.testing.assert_array_equal(
        oracle.simulated_outputs(compiled, inputs)[0], oracle.reference_outputs(graph, inputs)[0]
    )


@pytest.mark.parametrize("count", [512, 4096, 5000])
def test_more_equal_inputs_than_litert_takes_are_all_zero(count: int) -> None:
    compiled = oracle.compile_graph(softmax_graph((1, count), 0.1, 0, 1.0), oracle.TARGET)
    result = oracle.simulated_outputs(compiled, [np.full((1, count), 127, np.int8)])[0]
    assert np.all(result == -128)


def test_a_thousand_classes() -> None:
    oracle.assert_bit_exact(softmax_graph((1, 1001), 0.17, 22, 1.0), range(5))


def test_every_difference_at_many_scales() -> None:
    values = np.stack([np.full(256, 127), np.arange(-128, 128)], -1).astype(np.int8)
    for scale in np.exp(np.random.default_rng(3).uniform(np.log(1e-5), np.log(20.0), 60)):
        graph = softmax_graph((256, 2), float(scale), 0, 1.0)
        compiled = oracle.compile_graph(graph, oracle.TARGET)
        np.testing.assert_array_equal(
            oracle.simulated_outputs(compiled, [values])[0], oracle.reference_outputs(graph, [values])[0], f"{scale}"
        )


@pytest.mark.parametrize(
    ("scale", "entries"), [(0.05, 256), (0.1, 139), (0.5, 28), (1.0, 14), (7.0, 2), (15.9, 1), (1e6, 1)]
)
def test_the_table_ends_where_nothing_counts(scale: float, entries: int) -> None:
    table = exponentials_of_differences(scale, 1.0)
    assert len(table) == entries
    assert table[0] == 2**31 - 1
    real = np.exp(-np.arange(entries) * np.float64(np.float32(scale)))
    np.testing.assert_allclose(table / 2.0**31, real, rtol=1e-4, atol=1e-8)
