# SPDX-License-Identifier: BSD-3-Clause
"""Pools and reductions: the kernels against LiteRT's reference kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.select.select import select_node
from openneutron.ir import Graph, Node, constant, per_channel
from openneutron.ops import reject
from openneutron.ops.conv import window_output
from openneutron.ops.rescaling import mean_multiplier
from tests.runtime import element_calls
from tests.support import oracle

PROPERTY = settings(
    max_examples=100, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6")


@st.composite
def pools(draw: st.DrawFn) -> Graph:
    op = draw(st.sampled_from(["average_pool_2d", "max_pool_2d"]))
    height, width = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    channels = draw(st.sampled_from([1, 3, 8, 33, 41]))
    kernel_h, kernel_w = draw(st.integers(1, min(4, height))), draw(st.integers(1, min(4, width)))
    attrs = {
        "padding": draw(st.sampled_from(["SAME", "VALID"])),
        "stride_h": draw(st.integers(1, 3)),
        "stride_w": draw(st.integers(1, 3)),
        "kernel_h": kernel_h,
        "kernel_w": kernel_w,
        "activation": draw(st.sampled_from(ACTIVATIONS)),
    }
    node = Node(op, ("x",), ("y",), attrs)
    scale, zero_point = draw(st.sampled_from([0.01, 0.05, 0.3])), draw(st.integers(-128, 127))
    batches = draw(st.integers(1, 2))
    rows, cols = window_output(node, height, width, kernel_h, kernel_w)
    source = oracle.activation("x", (batches, height, width, channels), scale, zero_point)
    return oracle.graph_of(
        [source], [node], [oracle.activation("y", (batches, rows, cols, channels), scale, zero_point)]
    )


@PROPERTY
@given(pools(), st.integers(0, 2**31))
def test_pools_are_bit_exact_in_any_windows(graph: Graph, seed: int) -> None:
    element_calls.assert_bit_exact(graph, seed)


@st.composite
def padded_max_pools(draw: st.DrawFn) -> Graph:
    """A max pool behind a pad of the lowest value, which compiling makes into explicit padding."""
    kernel, stride = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    amounts = [draw(st.integers(0, kernel - 1)) for _ in range(3)] + [1]
    height, width = draw(st.integers(4, 8)), draw(st.integers(4, 8))
    padded = (1, height + sum(amounts[:2]), width + sum(amounts[2:]), 5)
    attrs = {
        "padding": "VALID",
        "stride_h": stride,
        "stride_w": stride,
        "kernel_h": kernel,
        "kernel_w": kernel,
        "activation": draw(st.sampled_from(ACTIVATIONS)),
    }
    pool = Node("max_pool_2d", ("p",), ("y",), attrs)
    rows, cols = window_output(pool, padded[1], padded[2], kernel, kernel)
    zero_point = draw(st.integers(-128, 127))
    source = oracle.activation("x", (1, height, width, 5), 0.04, zero_point)
    pads = constant("a", np.array([[0, 0], amounts[:2], amounts[2:], [0, 0]], np.int32))
    lowest = constant("v", np.array([-128], np.int8), source.quant)
    others = [
        oracle.activation("p", padded, 0.04, zero_point),
        oracle.activation("y", (1, rows, cols, 5), 0.04, zero_point),
    ]
    return oracle.graph_of([source], [Node("padv2", ("x", "a", "v"), ("p",)), pool], [pads, lowest, *others])


@PROPERTY
@given(padded_max_pools(), st.integers(0, 2**31))
def test_explicit_padding_is_bit_exact_in_any_windows(graph: Graph, seed: int) -> None:
    (node,) = legalize(graph).nodes
    assert node.op == "max_pool_2d" and len(node["padding"]) == 4
    element_calls.assert_bit_exact(graph, seed)


def test_a_window_in_the_padding_alone_is_the_lowest_value() -> None:
    """Only a max pool has an answer there: LiteRT's is the lowest value, bounded by the activation."""
    attrs = {"padding": (3, 3, 4, 3), "stride_h": 1, "stride_w": 2, "kernel_h": 2, "kernel_w": 3, "activation": "RELU"}
    node = Node("max_pool_2d", ("x",), ("y",), attrs)
    source, result = (
        oracle.activation("x", (1, 4, 3, 40), 0.05, -100),
        oracle.activation("y", (1, 9, 4, 40), 0.05, -100),
    )
    graph = oracle.graph_of([source], [node], [result])
    values = np.random.default_rng(5).integers(-128, 128, source.shape, np.int8)
    got = oracle.simulated_outputs(oracle.compile_graph(graph, oracle.TARGET), [values])[0]
    padded = np.pad(values, ((0, 0), (3, 3), (4, 3), (0, 0)), constant_values=-128)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 3), (1, 2))[:, :, ::2]
    np.testing.assert_array_equal(got, np.maximum(windows.max((-1, -2)), -100))


def _kept(shape: tuple[int, ...], axes: set[int], keep_dims: bool) -> tuple[int, ...]:
    if keep_dims:
        return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def mean_graph(
    shape: tuple[int, ...],
    axes: list[int],
    keep_dims: bool,
    scales: list[float],
    zero_points: list[int],
    op: str = "mean",
) -> Graph:
    reduced = {axis % len(shape) for axis in axes}
    node = Node(op, ("x", "a"), ("y",), {"keep_dims": keep_dims})
    result = oracle.activation("y", _kept(shape, reduced, keep_dims), scales[1], zero_points[1])
    others = [constant("a", np.array(axes, np.int32)), result]
    return oracle.graph_of([oracle.activation("x", shape, scales[0], zero_points[0])], [node], others)


@st.composite
def reductions(draw: st.DrawFn) -> Graph:
    """Any axes of ranks 1 to 4; of means, with the same or another scale."""
    op = draw(st.sampled_from(["mean", "reduce_max", "reduce_min"]))
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    shape = (*shape, draw(st.sampled_from([1, 3, 8, 33, 41])))
    axes = draw(st.lists(st.integers(-len(shape), len(shape) - 1), min_size=1, max_size=len(shape)))
    scale, zero_point = draw(st.floats(1e-3, 1.0)), draw(st.integers(-128, 127))
    same = op.startswith("reduce") or draw(st.booleans())
    scales = [scale, scale if same else draw(st.floats(1e-3, 1.0))]
    zero_points = [zero_point, zero_point if same else draw(st.integers(-128, 127))]
    return mean_graph(shape, axes, draw(st.booleans()), scales, zero_points, op)


@PROPERTY
@given(reductions(), st.integers(0, 2**31))
def test_reductions_are_bit_exact_in_any_windows(graph: Graph, seed: int) -> None:
    element_calls.assert_bit_exact(graph, seed)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 25, 49, 64, 65])
def test_global_means_are_bit_exact(size: int) -> None:
    graph = mean_graph((2, size, size, 12), [1, 2], True, [0.0235, 0.0118], [-128, -128])
    oracle.assert_bit_exact(graph, range(4))


@pytest.mark.parametrize(
    ("input_scale", "output_scale"), [(1e-6, 1.0), (2e-9, 1.0), (1e-10, 1.0), (1.0, 1e-3), (1.0, 1e-6)]
)
@pytest.mark.parametrize("count", [1, 3, 4, 1000])
def test_mean_at_the_ends_of_the_shift(input_scale: float, output_scale: float, count: int) -> None:
    graph = mean_graph((1, count, 1, 9), [1, 2], False, [input_scale, output_scale], [17, -3])
    oracle.assert_bit_exact(graph, range(2))


@st.composite
def weighted_sums(draw: st.DrawFn) -> Graph:
    """A depthwise convolution that adds whole images with one weight, as the front end lowers means that MEAN would round badly."""
    height, width = draw(st.integers(1, 9)), draw(st.integers(2, 9))
    channels = draw(st.sampled_from([1, 3, 8, 33, 41]))
    weight, factor = draw(st.integers(1, 127)), draw(st.floats(1e-3, 20.0)) / (height * width)
    source = oracle.activation(
        "x", (draw(st.integers(1, 2)), height, width, channels), 0.05, draw(st.integers(-128, 127))
    )
    result = oracle.activation("y", (source.shape[0], 1, 1, channels), 0.05, draw(st.integers(-128, 127)))
    scales = per_channel(np.full(channels, factor / weight), 3)
    weights = constant("w", np.full((1, height, width, channels), weight, np.int8), scales)
    attrs = dict.fromkeys(("stride_h", "stride_w", "dilation_h", "dilation_w", "depth_multiplier"), 1)
    attrs |= {"padding": draw(st.sampled_from(["SAME", "VALID"])), "activation": draw(st.sampled_from(ACTIVATIONS))}
    if attrs["padding"] == "SAME":
        attrs |= {"stride_h": height, "stride_w": width}
    node = Node("depthwise_conv_2d", ("x", "w"), ("y",), attrs)
    return oracle.graph_of([source], [node], [weights, result])


@PROPERTY
@given(weighted_sums(), st.integers(0, 2**31))
def test_weighted_sums_of_images_are_bit_exact_in_any_windows(graph: Graph, seed: int) -> None:
    assert [call.kernel for call in select_node(graph, graph.nodes[0])] == ["mean_s8"]
    element_calls.assert_bit_exact(graph, seed)


def test_mean_multiplier_holds_the_division() -> None:
    multiplier, shift = mean_multiplier(0.02, 0.01, 49)
    assert math.isclose(multiplier * 2.0 ** (shift - 31), 0.02 / 0.01 / 49, rel_tol=1e-6)


def test_mean_says_what_it_can_not_take() -> None:
    graph = mean_graph((2, 3, 2, 3, 2), [1, 3], False, [0.1, 0.1], [0, 0])
    assert reject(graph, graph.nodes[0]) == "it reduces axes [1, 3] of rank 5, 5 separate runs of axes; at most 4"
    graph = mean_graph((1, 4096, 4096, 1), [1, 2], False, [0.1, 0.1], [0, 0])
    assert reject(graph, graph.nodes[0]) == "it adds 16777216 values to one; at most 8388608"
