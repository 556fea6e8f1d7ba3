# SPDX-License-Identifier: BSD-3-Clause
"""Samplers of random graphs (random_builder.py) for layers: convolutions, fully connected layers and pools."""

from __future__ import annotations

import numpy as np

from openneutron.ir import Node, Tensor, per_channel, per_tensor
from openneutron.ir.graph import AttrValue
from openneutron.ops.conv import window_output
from tests.support.random_builder import Builder, Sampler

ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6")


def weights_and_bias(
    b: Builder, shape: tuple[int, ...], axis: int, source: Tensor, inputs: int, always_bias: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Weights and bias (sometimes absent), with scales that keep outputs in range."""
    count = shape[axis]
    size = 0.5 / np.sqrt(inputs) / 64
    data = b.random.integers(-127, 128, shape).astype(np.int8)
    if b.random.random() < 0.3:
        quant = per_tensor(float(size), 0)
    else:
        quant = per_channel(size * b.random.uniform(0.2, 2.0, count), axis)
    weights = b.const(data, quant)
    if not always_bias and b.random.random() < 0.2:
        return weights, None
    assert source.quant is not None
    scales = np.array(quant.scales) * source.quant.scale
    bias = b.random.integers(-3000, 3000, count).astype(np.int32)
    bias_quant = per_channel(scales, 0) if len(scales) > 1 else per_tensor(float(scales[0]), 0)
    return weights, b.const(bias, bias_quant)


def _window(b: Builder, source: Tensor) -> dict[str, AttrValue] | None:
    _, height, width, _ = source.shape
    attrs: dict[str, AttrValue] = {
        "padding": b.choice("SAME", "VALID"),
        "stride_h": b.up_to(3),
        "stride_w": b.up_to(3),
        "activation": b.choice(*ACTIVATIONS),
    }
    return attrs if height > 0 and width > 0 else None


def _kernel(b: Builder, source: Tensor, attrs: dict[str, AttrValue]) -> tuple[int, int]:
    """A kernel (and dilations, for convolutions) that fits the input."""
    sides = []
    for axis, suffix in ((1, "h"), (2, "w")):
        extent = source.shape[axis]
        kernel = b.up_to(min(5, extent))
        dilation = b.up_to(2) if (kernel - 1) * 2 < extent and attrs[f"stride_{suffix}"] == 1 else 1
        attrs[f"dilation_{suffix}"] = dilation
        sides.append(kernel)
    return sides[0], sides[1]


def conv_2d(b: Builder, source: Tensor) -> Tensor | None:
    if len(source.shape) != 4 or (attrs := _window(b, source)) is None:
        return None
    kernel_h, kernel_w = _kernel(b, source, attrs)
    channels = source.shape[3]
    groups = 2 if channels % 2 == 0 and b.random.random() < 0.15 else 1
    filters = groups * b.up_to(12)
    if b.random.random() < 0.3:
        kernel_h = kernel_w = attrs["dilation_h"] = attrs["dilation_w"] = 1
    shape = (filters, kernel_h, kernel_w, channels // groups)
    # LiteRT's int8 CONV_2D refuses to run without a bias.
    weights, bias = weights_and_bias(b, shape, 0, source, kernel_h * kernel_w * channels // groups, always_bias=True)
    node = Node("conv_2d", (), ("x",), attrs)
    rows, cols = window_output(node, source.shape[1], source.shape[2], kernel_h, kernel_w)
    return b.node("conv_2d", [source, weights, bias], b.new((source.shape[0], rows, cols, filters)), **attrs)


def depthwise_conv_2d(b: Builder, source: Tensor) -> Tensor | None:
    if len(source.shape) != 4 or (attrs := _window(b, source)) is None:
        return None
    kernel_h, kernel_w = _kernel(b, source, attrs)
    multiplier = b.choice(1, 1, 1, 2, 3)
    filters = source.shape[3] * multiplier
    if filters > 64:
        return None
    weights, bias = weights_and_bias(b, (1, kernel_h, kernel_w, filters), 3, source, kernel_h * kernel_w)
    node = Node("depthwise_conv_2d", (), ("x",), attrs)
    rows, cols = window_output(node, source.shape[1], source.shape[2], kernel_h, kernel_w)
    output = b.new((source.shape[0], rows, cols, filters))
    return b.node("depthwise_conv_2d", [source, weights, bias], output, depth_multiplier=multiplier, **attrs)


def fully_connected(b: Builder, source: Tensor) -> Tensor | None:
    inputs = source.shape[-1] if b.random.random() < 0.5 else int(np.prod(source.shape[1:]))
    if len(source.shape) < 2 or inputs > 512:
        return None
    outputs = b.up_to(20)
    weights, bias = weights_and_bias(b, (outputs, inputs), 0, source, inputs)
    keep = bool(b.random.random() < 0.5) and inputs == source.shape[-1]
    shape = (*source.shape[:-1], outputs) if keep else (source.elements // inputs, outputs)
    attrs = {"keep_num_dims": keep, "activation": b.choice(*ACTIVATIONS), "weights_format": "DEFAULT"}
    return b.node("fully_connected", [source, weights, bias], b.new(shape), **attrs)


def pool(op: str) -> Sampler:
    def sample(b: Builder, source: Tensor) -> Tensor | None:
        if len(source.shape) != 4 or (attrs := _window(b, source)) is None:
            return None
        attrs["kernel_h"], attrs["kernel_w"] = b.up_to(min(4, source.shape[1])), b.up_to(min(4, source.shape[2]))
        rows, cols = window_output(
            Node(op, (), ("x",), attrs), source.shape[1], source.shape[2], attrs["kernel_h"], attrs["kernel_w"]
        )
        output = b.new((source.shape[0], rows, cols, source.shape[3]), source.quant)
        return b.node(op, [source], output, **attrs)

    return sample
