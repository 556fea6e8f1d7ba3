# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions, fully connected layers and products of matrices on int16 activations: the kernels against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openneutron.compiler import CompileOptions
from openneutron.ir import Graph, Node, Tensor, constant, per_channel, per_tensor
from openneutron.ops import reject
from openneutron.ops.conv import window_output
from tests.runtime import element_calls
from tests.support import oracle

pytestmark = pytest.mark.int16

PROPERTY = settings(
    max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6")
Attrs = dict[str, object]


def _weights(random: np.random.Generator, shape: tuple[int, ...], axis: int) -> Tensor:
    data = random.integers(-127, 128, shape, np.int8)
    if random.random() < 0.2:
        data[...] = random.choice([-127, 127], shape)
    channels = shape[axis] if random.random() < 0.6 else 1
    scales = random.uniform(0.2, 3.0, channels) / np.sqrt(data.size // shape[axis]) / 70
    # One scale for each channel, or one for all: LiteRT takes an array of one as the latter.
    return constant("w", data, per_channel(scales, axis) if channels > 1 else per_tensor(float(scales[0]), 0))


def _layer(
    random: np.random.Generator, node: Node, source: Tensor, weights: Tensor, axis: int, shape: tuple[int, ...]
) -> Graph:
    """The graph of one layer. Half of the results, or a few of them, are beyond the range; biases have up to 40 bits."""
    assert source.quant is not None and weights.quant is not None
    others, inputs = [weights], list(node.inputs)
    if "b" in inputs:
        scales = [source.quant.scale * scale for scale in weights.quant.scales]
        narrow = node.attrs.get("quantized_bias_type") == "INT32"
        most = 2 ** int(random.integers(1, 30 if narrow else 40))
        data = random.integers(-most, most, weights.shape[axis]).astype(np.int32 if narrow else np.int64)
        others.append(constant("b", data, per_channel(scales, 0) if len(scales) > 1 else per_tensor(scales[0], 0)))
    output = oracle.wide_activation("y", shape, float(source.quant.scale * np.exp(random.uniform(-2, 4))))
    extra = [constant("s", np.array(shape, np.int32))] if node.op == "transpose_conv" else []
    return oracle.graph_of([source], [node], [*extra, *others, output])


def _attrs(draw: st.DrawFn) -> Attrs:
    return {
        "padding": draw(st.sampled_from(["SAME", "VALID"])),
        "stride_h": draw(st.integers(1, 3)),
        "stride_w": draw(st.integers(1, 3)),
        "activation": draw(st.sampled_from(ACTIVATIONS)),
    }


def _bias_type(draw: st.DrawFn) -> Attrs:
    return {"quantized_bias_type": draw(st.sampled_from(["FLOAT32", "INT32", "INT64"]))}


@st.composite
def convolutions(draw: st.DrawFn) -> Graph:
    """Any kernel, stride, dilation, padding and number of groups, depthwise ones among them; an int32 bias, an int64 one."""
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    attrs = {**_attrs(draw), "dilation_h": draw(st.integers(1, 2)), "dilation_w": draw(st.integers(1, 3))}
    kernel = draw(st.sampled_from([(1, 1), (3, 3), (1, 5), (4, 2)]))
    height = draw(st.integers(1, 4)) + (kernel[0] - 1) * int(str(attrs["dilation_h"]))
    width = draw(st.integers(1, 9)) + (kernel[1] - 1) * int(str(attrs["dilation_w"]))
    batches = draw(st.integers(1, 2))
    depthwise = draw(st.booleans())
    if depthwise:
        channels, multiplier = draw(st.integers(1, 40)), draw(st.sampled_from([1, 1, 1, 2, 3, 8]))
        weights = _weights(random, (1, *kernel, channels * multiplier), 3)
        attrs["depth_multiplier"] = multiplier
    else:
        groups, group_inputs = draw(st.sampled_from([1, 1, 1, 2, 3])), draw(st.sampled_from([1, 3, 8, 16, 20, 33]))
        channels = group_inputs * groups
        weights = _weights(random, (draw(st.integers(1, 36 // groups)) * groups, *kernel, group_inputs), 0)
        attrs |= _bias_type(draw)
    source = oracle.wide_activation("x", (batches, height, width, channels))
    op, axis = ("depthwise_conv_2d", 3) if depthwise else ("conv_2d", 0)
    node = Node(op, ("x", "w", "b"), ("y",), attrs)
    shape = (batches, *window_output(node, height, width, *kernel), weights.shape[axis])
    return _layer(random, node, source, weights, axis, shape)


@st.composite
def fully_connected_layers(draw: st.DrawFn) -> Graph:
    """Inputs of rank 2 to 4, with and without a bias."""
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    inputs, outputs = draw(st.sampled_from([1, 7, 64, 90, 700])), draw(st.integers(1, 40))
    lead = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    keep = draw(st.booleans())
    source = oracle.wide_activation("x", (*lead, inputs), float(np.exp(random.uniform(-9, -5))))
    attrs = {"activation": draw(st.sampled_from(ACTIVATIONS)), "keep_num_dims": keep, "weights_format": "DEFAULT"}
    operands = ("x", "w", "b") if draw(st.booleans()) else ("x", "w", None)
    node = Node("fully_connected", operands, ("y",), attrs | _bias_type(draw))
    shape = (*lead, outputs) if keep else (int(np.prod(lead)), outputs)
    return _layer(random, node, source, _weights(random, (outputs, inputs), 0), 0, shape)


@st.composite
def transposed_convolutions(draw: st.DrawFn) -> Graph:
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    attrs = _attrs(draw) | _bias_type(draw)
    kernel = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    height, width, inputs, outputs = (draw(st.integers(1, most)) for most in (4, 5, 20, 12))
    strides = int(str(attrs["stride_h"])), int(str(attrs["stride_w"]))
    valid = attrs["padding"] == "VALID"
    sizes = [
        (extent - 1) * stride + (taps if valid else 1) + draw(st.integers(0, stride - 1))
        for extent, stride, taps in zip((height, width), strides, kernel, strict=True)
    ]
    weights = _weights(random, (outputs, *kernel, inputs), 0)
    operands = ("s", "w", "x", "b") if draw(st.booleans()) else ("s", "w", "x", None)
    node = Node("transpose_conv", operands, ("y",), attrs)
    return _layer(
        random, node, oracle.wide_activation("x", (1, height, width, inputs)), weights, 0, (1, *sizes, outputs)
    )


@PROPERTY
@given(convolutions(), st.integers(0, 2**31))
def test_convolutions_are_bit_exact_in_any_windows(graph: Graph, seed: int) -> None:
    element_calls.assert_bit_exact(graph, seed)


@PROPERTY
@given(fully_connected_layers(), st.integers(0, 2**31))
def test_fully_connected_layers_are_bit_exact_in_any_windows(graph: Graph, seed: int) -> None:
    element_calls.assert_bit_exact(graph, seed)


@settings(PROPERTY, max_examples=40)
@given(transposed_convolutions(), st.integers(0, 2**31))
def test_transposed_convolutions_are_bit_exact_in_any_windows(graph: Graph, seed: int) -> None:
    element_calls.assert_bit_exact(graph, seed)


def _convolution(bias: npt.NDArray[np.signedinteger] | None = None, scale: float = 1e-3, **attrs: object) -> Graph:
    """A 3x3 convolution of 8 channels to 4."""
    given_attrs = {
        "padding": "SAME", "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "activation": "NONE",
        **attrs,
    }  # fmt: skip
    random = np.random.default_rng(3)
    source = oracle.wide_activation("x", (1, 6, 6, 8))
    weights = constant("w", random.integers(-127, 128, (4, 3, 3, 8), np.int8), per_tensor(0.01, 0))
    data = random.integers(-1000, 1000, 4, np.int64) if bias is None else bias
    node = Node("conv_2d", ("x", "w", "b"), ("y",), given_attrs)
    others = [weights, constant("b", data, per_tensor(1e-5, 0)), oracle.wide_activation("y", (1, 6, 6, 4), scale)]
    return oracle.graph_of([source], [node], others)


def _refusal(graph: Graph) -> str | None:
    return reject(graph, graph.nodes[0])


def test_biases_of_other_types_are_refused() -> None:
    assert _refusal(_convolution(np.zeros(4, np.int8))) == (
        "its bias 'b' is int8 and constant; it must be constant int64 with int16 activations"
    )
    assert _refusal(_convolution(np.zeros(4, np.int32))) == (
        "its bias 'b' is int32 and constant; it must be constant int64 with int16 activations"
    )
    assert _refusal(_convolution(quantized_bias_type="INT32")) == (
        "its bias 'b' is int64 and constant; it must be constant int32 with int16 activations and option quantized_bias_type INT32"
    )


def test_accumulators_that_litert_does_not_rescale_are_refused() -> None:
    assert _refusal(_convolution(np.full(4, 2**47))) == (
        "its accumulator may reach 1.40738e+14; with int16 activations LiteRT rescales those below 2^47"
    )
    assert _refusal(_convolution(scale=1e-8)) == "its scales make a rescaling factor of 1000; it must be below 2^7"


def _encoder() -> Graph:
    """Convolutions, a depthwise one with a skip around it, and a transposed one."""
    random = np.random.default_rng(11)
    tensors: dict[str, Tensor] = {}
    nodes: list[Node] = []
    window = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "activation": "RELU"}

    def layer(
        op: str, source: str, result: str, shape: tuple[int, ...], weights: tuple[int, ...], **attrs: object
    ) -> None:
        axis = 3 if op == "depthwise_conv_2d" else 0
        data = random.integers(-127, 128, weights, np.int8)
        scales = random.uniform(0.5, 1.5, weights[axis]) / np.sqrt(data.size // weights[axis]) / 70
        bias = random.integers(-(2**20), 2**20, weights[axis])
        extra = {"depth_multiplier": 1} if axis else {}
        tensors[f"{result}_w"] = constant(f"{result}_w", data, per_channel(scales, axis))
        tensors[f"{result}_b"] = constant(f"{result}_b", bias, per_channel(scales * 1e-3, 0))
        tensors[result] = oracle.wide_activation(result, shape)
        operands: tuple[str, ...] = (source, f"{result}_w", f"{result}_b")
        if op == "transpose_conv":
            tensors[f"{result}_s"] = constant(f"{result}_s", np.array(shape, np.int32))
            operands = (f"{result}_s", f"{result}_w", source, f"{result}_b")
        nodes.append(Node(op, operands, (result,), {**window, **extra, **attrs}))

    layer("conv_2d", "x", "a", (1, 24, 16, 16), (16, 3, 3, 3))
    layer("depthwise_conv_2d", "a", "b", (1, 24, 16, 16), (1, 3, 3, 16))
    nodes.append(Node("add", ("b", "a"), ("e",), {"activation": "NONE", "pot_scale_int16": False}))
    tensors["e"] = oracle.wide_activation("e", (1, 24, 16, 16))
    layer("conv_2d", "e", "c", (1, 12, 8, 24), (24, 3, 3, 16), stride_h=2, stride_w=2)
    layer("transpose_conv", "c", "d", (1, 24, 16, 16), (16, 2, 2, 24), stride_h=2, stride_w=2, padding="VALID")
    layer("conv_2d", "d", "y", (1, 24, 16, 8), (8, 1, 1, 16))
    return oracle.graph_of([oracle.wide_activation("x", (1, 24, 16, 3))], nodes, list(tensors.values()))


@pytest.mark.parametrize("fetch", [False, True])
def test_a_network_in_cascades_within_any_budget(fetch: bool) -> None:
    graph = _encoder()
    inputs = oracle.random_inputs(graph, 0)
    want = oracle.reference_outputs(graph, inputs)
    compiled = oracle.assert_bit_exact(graph, (1,), CompileOptions(prefetch_constants=fetch))
    most, least = compiled.report.sram_bytes, oracle.least_budget(graph, fetch)
    assert least < 0.8 * most, "nothing runs in stripes"
    for budget in (least, (least + most) // 2):
        options = CompileOptions(sram_budget=budget, prefetch_constants=fetch, check=True)
        oracle.assert_fits_and_is_exact(graph, options, inputs, want)
