# SPDX-License-Identifier: BSD-3-Clause
"""Convolution kernels against LiteRT's reference kernels, every variant that this machine can run."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openneutron.compiler.select.select import select_node
from openneutron.ir import Graph, Node, Tensor, constant, per_channel, per_tensor
from openneutron.ops.conv import window_output
from tests.support import convolution_calls as kernels
from tests.support import oracle
from tests.support.convolution_calls import Layout, Prepared, prepare

ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6")
PROPERTY = settings(
    max_examples=150, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


def _weights(generator: np.random.Generator, shape: tuple[int, ...], axis: int, channelwise: bool) -> Tensor:
    data = generator.integers(-127, 128, shape, np.int8)
    taps = data.size // shape[axis]
    scales = generator.uniform(0.2, 3.0, shape[axis] if channelwise else 1) / np.sqrt(taps) / 70
    return constant("w", data, per_channel(scales, axis) if channelwise else per_tensor(float(scales[0]), 0))


def _graph(
    op: str,
    generator: np.random.Generator,
    source: Tensor,
    weights: Tensor,
    axis: int,
    bias: bool,
    attrs: dict[str, object],
    shape: tuple[int, ...],
) -> Graph:
    tensors = [source, weights]
    filters = weights.shape[axis]
    if bias:
        assert source.quant is not None and weights.quant is not None
        data = generator.integers(-3000, 3000, filters, np.int32)
        scales = [source.quant.scale * scale for scale in weights.quant.scales]
        quant = per_channel(scales, 0) if len(scales) > 1 else per_tensor(scales[0], 0)
        tensors.append(constant("b", data, quant))
    result = oracle.activation("y", shape, float(generator.uniform(0.02, 0.2)), int(generator.integers(-128, 128)))
    inputs = ("x", "w", "b") if bias else ("x", "w", None)
    return oracle.graph_of([source], [Node(op, inputs, ("y",), attrs)], [*tensors[1:], result])


@st.composite
def convolutions(draw: st.DrawFn) -> Graph:
    generator = np.random.default_rng(draw(st.integers(0, 2**31)))
    attrs: dict[str, object] = {
        "padding": draw(st.sampled_from(["SAME", "VALID"])),
        "stride_h": draw(st.integers(1, 3)),
        "stride_w": draw(st.integers(1, 3)),
        "dilation_h": draw(st.integers(1, 2)),
        "dilation_w": draw(st.integers(1, 3)),
        "activation": draw(st.sampled_from(ACTIVATIONS)),
    }
    kernel = draw(st.sampled_from([(1, 1), (3, 3), (1, 5), (4, 2), (5, 5)]))
    # No dilation where the input must be at least as long as the dilated kernel to have an output at all.
    height = draw(st.integers(1, 6)) + (kernel[0] - 1) * int(str(attrs["dilation_h"]))
    width = draw(st.integers(1, 20)) + (kernel[1] - 1) * int(str(attrs["dilation_w"]))
    batches = draw(st.integers(1, 2))
    depthwise = draw(st.booleans())
    if depthwise:
        channels = draw(st.integers(1, 40))
        multiplier = draw(st.sampled_from([1, 1, 1, 2, 3, 8]))
        weights = _weights(generator, (1, *kernel, channels * multiplier), 3, draw(st.booleans()))
        attrs["depth_multiplier"] = multiplier
    else:
        groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
        group_inputs, group_outputs = draw(st.integers(1, 40)), draw(st.integers(1, 60 // groups))
        channels = group_inputs * groups
        shape = (group_outputs * groups, *kernel, group_inputs)
        weights = _weights(generator, shape, 0, draw(st.booleans()))
    source = oracle.activation("x", (batches, height, width, channels), 0.05, draw(st.integers(-128, 127)))
    op, axis = ("depthwise_conv_2d", 3) if depthwise else ("conv_2d", 0)
    node = Node(op, ("x", "w", None), ("y",), attrs)
    output = (batches, *window_output(node, height, width, *kernel), weights.shape[axis])
    return _graph(op, generator, source, weights, axis, draw(st.booleans()), attrs, output)


@st.composite
def fully_connected_layers(draw: st.DrawFn) -> Graph:
    generator = np.random.default_rng(draw(st.integers(0, 2**31)))
    inputs, outputs = draw(st.integers(1, 90)), draw(st.integers(1, 70))
    lead = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    keep = draw(st.booleans())
    weights = _weights(generator, (outputs, inputs), 0, draw(st.booleans()))
    source = oracle.activation("x", (*lead, inputs), 0.05, draw(st.integers(-128, 127)))
    shape = (*lead, outputs) if keep else (int(np.prod(lead)), outputs)
    attrs = {"activation": draw(st.sampled_from(ACTIVATIONS)), "keep_num_dims": keep, "weights_format": "DEFAULT"}
    return _graph("fully_connected", generator, source, weights, 0, draw(st.booleans()), attrs, shape)


def _prepared(graph: Graph) -> Prepared:
    (call,) = select_node(graph, graph.nodes[0])
    return prepare(call)


def _with_bias(graph: Graph) -> Graph:
    """LiteRT wants a bias where the graph has none: zeros, which is what absence means."""
    (node,) = graph.nodes
    if node.inputs[2] is not None:
        return graph
    weights, source = graph["w"], graph["x"]
    assert weights.quant is not None and source.quant is not None
    scales = [source.quant.scale * scale for scale in weights.quant.scales]
    zeros = np.zeros(weights.shape[3 if node.op == "depthwise_conv_2d" else 0], np.int32)
    bias = constant("b", zeros, per_channel(scales, 0) if len(scales) > 1 else per_tensor(scales[0], 0))
    return graph.rebuilt([replace(node, inputs=("x", "w", "b"))], [bias])


def _assert_bit_exact(graph: Graph) -> None:
    prepared = _prepared(graph)
    (source,) = oracle.random_inputs(graph, 1)
    (want,) = oracle.reference_outputs(_with_bias(graph), [source])
    for variant in kernels.variants():
        got = prepared.run(variant, source.reshape(prepared.input_extents))
        assert got is not None or variant not in ("portable", "plain")
        if got is not None:
            np.testing.assert_array_equal(got.reshape(want.shape), want, f"{variant}\n{graph}")


@PROPERTY
@given(convolutions())
def test_convolutions_equal_litert(graph: Graph) -> None:
    _assert_bit_exact(graph)


@PROPERTY
@given(fully_connected_layers())
def test_fully_connected_layers_equal_litert(graph: Graph) -> None:
    _assert_bit_exact(graph)


def _plain(op: str, height: int, width: int, channels: int, filters: int, kernel: int, **attrs: object) -> Graph:
    """One convolution with SAME padding, per-channel scales and a bias."""
    generator = np.random.default_rng(5)
    given_attrs = {
        "padding": "SAME", "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "activation": "NONE", **attrs,
    }  # fmt: skip
    depthwise = op == "depthwise_conv_2d"
    axis = 3 if depthwise else 0
    shape = (1, kernel, kernel, filters) if depthwise else (filters, kernel, kernel, channels)
    if depthwise:
        given_attrs["depth_multiplier"] = filters // channels
    source = oracle.activation("x", (1, height, width, channels), 0.05, 11)
    node = Node(op, ("x", "w", None), ("y",), given_attrs)
    output = (1, *window_output(node, height, width, kernel, kernel), filters)
    return _graph(op, generator, source, _weights(generator, shape, axis, True), axis, True, given_attrs, output)


@settings(PROPERTY, max_examples=40)
@given(st.one_of(convolutions(), fully_connected_layers()))
def test_compiled_layers_equal_litert(graph: Graph) -> None:
    oracle.assert_bit_exact(_with_bias(graph), seeds=(0,))


GRAPHS = {
    "conv_2d": _plain("conv_2d", 9, 13, 20, 28, 3),
    "conv_2d, stride 2": _plain("conv_2d", 11, 19, 3, 32, 3, stride_h=2, stride_w=2),
    "conv_2d, dilated": _plain("conv_2d", 12, 10, 8, 16, 3, dilation_h=2, dilation_w=3),
    "conv_2d_1x1": _plain("conv_2d", 7, 7, 40, 52, 1),
    "conv_2d_1x1, stride 2": _plain("conv_2d", 7, 9, 16, 24, 1, stride_h=2, stride_w=2),
    "depthwise": _plain("depthwise_conv_2d", 9, 14, 44, 44, 3),
    "depthwise, stride 2": _plain("depthwise_conv_2d", 10, 21, 32, 32, 3, stride_h=2, stride_w=2),
    "depthwise, 5x5": _plain("depthwise_conv_2d", 8, 8, 24, 24, 5),
    "depthwise, multiplier 3": _plain("depthwise_conv_2d", 6, 6, 8, 24, 3),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_variants_take_what_they_are_made_for(name: str) -> None:
    graph = GRAPHS[name]
    prepared = _prepared(graph)
    (source,) = oracle.random_inputs(graph, 1)
    for variant in kernels.variants():
        taken = prepared.run(variant, source) is not None
        assert taken == (variant in ("portable", "plain") or "multiplier" not in name), variant


def _cuts(generator: np.random.Generator, extent: int, multiple: int = 1) -> list[tuple[int, int]]:
    inner = np.arange(multiple, extent, multiple)
    chosen = (
        generator.choice(inner, min(inner.size, int(generator.integers(0, 3))), replace=False) if inner.size else []
    )
    edges = [0, *sorted(int(cut) for cut in chosen), extent]
    return list(itertools.pairwise(edges))


@pytest.mark.parametrize("name", GRAPHS)
def test_windows_that_cover_the_output_give_the_same_bytes(name: str) -> None:
    graph = GRAPHS[name]
    prepared = _prepared(graph)
    (source,) = oracle.random_inputs(graph, 2)
    (want,) = oracle.reference_outputs(graph, [source])
    _, height, width, channels = prepared.output_extents
    for seed in range(6):
        generator = np.random.default_rng(seed)
        windows = [
            {"row0": r[0], "row1": r[1], "col0": c[0], "col1": c[1], "channel0": k[0], "channel1": k[1]}
            for r in _cuts(generator, height)
            for c in _cuts(generator, width)
            for k in _cuts(generator, channels, 8)
        ]
        windows = [windows[i] for i in generator.permutation(len(windows))]
        for variant in kernels.variants():
            got = prepared.run(variant, source, windows)
            if got is not None:
                np.testing.assert_array_equal(got, want, f"{name} {variant} {windows}")


@pytest.mark.parametrize("name", GRAPHS)
def test_rolling_buffers_give_the_same_bytes(name: str) -> None:
    graph = GRAPHS[name]
    prepared = _prepared(graph)
    params = prepared.call.params
    (source,) = oracle.random_inputs(graph, 3)
    (want,) = oracle.reference_outputs(graph, [source])
    for step in (1, 2):
        windows, needed = [], []
        for row in range(0, prepared.output_extents[1], step):
            end = min(row + step, prepared.output_extents[1])
            first = row * params["stride_h"] - params["pad_top"]
            last = (end - 1) * params["stride_h"] - params["pad_top"] + (params["kernel_h"] - 1) * params["dilation_h"]
            windows.append({"row0": row, "row1": end})
            needed.append((max(first, 0), min(last + 1, source.shape[1])))
        ring = max(end - first for first, end in needed)
        rolling = prepared.with_layouts(kernels.dense(prepared.input_extents, ring))
        for variant in kernels.variants():
            got = rolling.run(variant, source, windows, needed)
            if got is not None:
                np.testing.assert_array_equal(got, want, f"{name} {variant} step {step}")


def _spread(extents: tuple[int, int, int, int], order: str) -> Layout:
    """Gaps after every dimension, the dimensions from outermost to innermost in this order."""
    pitches, pitch = {}, 1 if order.endswith("K") else 2
    for dimension in reversed(order):
        pitches[dimension] = pitch
        pitch = pitch * extents["NRCK".index(dimension)] + 3
    held = {dimension: (0, extents["NRCK".index(dimension)]) for dimension in "RCK"}
    return Layout(tuple(pitches[d] for d in "NRCK"), extents[1], held["C"], held["K"])  # type: ignore[arg-type]


@pytest.mark.parametrize("orders", [("NRCK", "NRCK"), ("NKRC", "NRCK"), ("NRCK", "NKRC"), ("CRKN", "KCRN")])
@pytest.mark.parametrize("name", GRAPHS)
def test_any_pitches_give_the_same_bytes(name: str, orders: tuple[str, str]) -> None:
    graph = GRAPHS[name]
    prepared = _prepared(graph)
    (source,) = oracle.random_inputs(graph, 4)
    (want,) = oracle.reference_outputs(graph, [source])
    spread = prepared.with_layouts(
        _spread(prepared.input_extents, orders[0]), _spread(prepared.output_extents, orders[1])
    )
    for variant in kernels.variants():
        got = spread.run(variant, source)
        if got is not None:
            np.testing.assert_array_equal(got, want, f"{name} {variant}")
        else:
            assert variant not in ("portable", "plain")
