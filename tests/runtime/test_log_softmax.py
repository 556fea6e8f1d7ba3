# SPDX-License-Identifier: BSD-3-Clause
"""The logarithm of softmax: the kernel against LiteRT's reference kernel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openneutron import ops
from openneutron.compiler import compile_graph
from openneutron.ir import Graph, Node
from tests.runtime import element_calls
from tests.support import oracle

PROPERTY = settings(
    max_examples=100, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


def log_softmax_graph(shape: tuple[int, ...], scale: float, zero_point: int) -> Graph:
    node = Node("log_softmax", ("x",), ("y",), {})
    result = oracle.activation("y", shape, 1 / 16, 127)
    return oracle.graph_of([oracle.activation("x", shape, scale, zero_point)], [node], [result])


@st.composite
def log_softmaxes(draw: st.DrawFn) -> Graph:
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=0, max_size=3)))
    shape = (*shape, draw(st.sampled_from([1, 2, 3, 10, 12, 100, 257])))
    scale = float(np.exp(draw(st.floats(np.log(1e-4), np.log(50.0)))))
    return log_softmax_graph(shape, scale, draw(st.integers(-128, 127)))


@PROPERTY
@given(log_softmaxes(), st.integers(0, 2**31))
def test_bit_exact_in_any_windows(graph: Graph, seed: int) -> None:
    element_calls.assert_bit_exact(graph, seed)


def assert_same(graph: Graph, values: np.ndarray, message: str = "") -> None:
    compiled = oracle.compile_graph(graph, oracle.TARGET)
    got, want = oracle.simulated_outputs(compiled, [values])[0], oracle.reference_outputs(graph, [values])[0]
    np.testing.assert_array_equal(got, want, message)


@pytest.mark.parametrize("count", [1, 2, 3, 255, 256, 257, 1000, 4095])
def test_equal_inputs(count: int) -> None:
    assert_same(log_softmax_graph((1, count), 0.1, 0), np.full((1, count), -7, np.int8))


def test_every_sum_of_a_small_scale() -> None:
    values = np.where(np.arange(4095)[None, :] <= np.arange(0, 4095, 13)[:, None], 100, -128).astype(np.int8)
    for lines in oracle.in_memory(values):
        assert_same(log_softmax_graph(lines.shape, 0.11, 3), lines)


def test_every_difference_at_many_scales() -> None:
    values = np.stack([np.full(256, 127), np.arange(-128, 128)], -1).astype(np.int8)
    for scale in np.exp(np.random.default_rng(3).uniform(np.log(1e-5), np.log(50.0), 60)):
        assert_same(log_softmax_graph((256, 2), float(scale), 0), values, f"{scale}")


def test_more_exponentials_than_the_sum_holds_are_refused() -> None:
    graph = log_softmax_graph((2, 4096), 0.1, 0)
    assert ops.reject(graph, graph.nodes[0]) == "it adds 4096 exponentials; LiteRT's sum holds 4095"


def test_all_pipelines_share_the_values_as_in_softmax() -> None:
    logarithm = log_softmax_graph((4, 100), 0.1, 3)
    result = oracle.activation("y", (4, 100), 1 / 256, -128)
    softmax = oracle.graph_of([logarithm["x"]], [Node("softmax", ("x",), ("y",), {"beta": 1.0})], [result])
    reports = [compile_graph(each, oracle.TARGET).report for each in (logarithm, softmax)]
    logarithms, softmaxes = ([call for call in report.operators if call.kernel != "move_s8"] for report in reports)
    assert [call.cycles for call in logarithms] == [call.cycles for call in softmaxes]
    assert {call.parallel for call in (*logarithms, *softmaxes)} == {"values"}
    # With tiles, the kernels wait for constants, which are not as many bytes.
    assert reports[0].cycles == reports[1].cycles or oracle.TARGET.moves_tiles
