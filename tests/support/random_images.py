# SPDX-License-Identifier: BSD-3-Clause
"""Random graphs over images, sequences and batches, from a seed: operators that cascades compute in stripes of rows."""

from __future__ import annotations

from openneutron.ir import Graph, Tensor
from tests.support import random_graphs, random_layers

SPATIAL = (
    *("conv_2d", "conv_2d", "depthwise_conv_2d", "depthwise_conv_2d", "add", "mul", "max_pool_2d", "average_pool_2d"),
    *("concatenation", "pad", "slice", "resize_nearest_neighbor", "resize_bilinear", "logistic", "maximum", "softmax"),
)
"""Operators that rows stream through, the usual ones twice."""


def same_shape(b: random_graphs.Builder, source: Tensor) -> Tensor | None:
    """A depthwise convolution that keeps the shape, and the sum with its own input."""
    made = random_layers.depthwise_conv_2d(b, source)
    if made is not None and made.shape == source.shape:
        made = b.node("add", [source, made], b.new(source.shape), activation="NONE")
    return made


def image_graph(seed: int) -> Graph:
    """An image of up to 30 rows through 4 to 14 operators with branches; what nobody reads is an output."""
    b = random_graphs.Builder(seed)
    values = [b.input((1, 6 + b.up_to(24), b.up_to(6), b.up_to(9)))]
    count = 3 + b.up_to(10)
    while len(b.nodes) < count:
        source = values[-1 - int(b.random.integers(min(3, len(values))))]
        name = SPATIAL[int(b.random.integers(len(SPATIAL)))]
        sampler = same_shape if b.random.random() < 0.25 else random_graphs.SAMPLERS[name]
        before = len(b.nodes)
        output = sampler(b, source)
        if output is None or output.quant is None or output.elements > 9000 or len(output.shape) != 4:
            del b.nodes[before:]
            continue
        values.append(output)
    read = {name for node in b.nodes for name in node.inputs}
    return b.graph([value for value in values if value.name not in read and value.name not in b.inputs])


SEQUENTIAL = (
    *("conv_2d", "conv_2d", "depthwise_conv_2d", "depthwise_conv_2d", "add", "mul", "max_pool_2d", "average_pool_2d"),
    *("concatenation", "pad", "slice", "resize_nearest_neighbor", "resize_bilinear", "logistic", "softmax", "prelu"),
    *("fully_connected", "strided_slice", "transpose_conv", "arg_max", "mean"),
)


def sequence_graph(seed: int, most: int = 10) -> Graph:
    """A sequence of up to 40 steps through 4 or more operators with branches; now and then one makes a second row."""
    b = random_graphs.Builder(seed)
    values = [b.input((1, 1, 10 + b.up_to(30), b.up_to(9)))]
    count = 3 + b.up_to(most - 3)
    while len(b.nodes) < count:
        source = values[-1 - int(b.random.integers(min(3, len(values))))]
        before = len(b.nodes)
        output = random_graphs.SAMPLERS[SEQUENTIAL[int(b.random.integers(len(SEQUENTIAL)))]](b, source)
        if output is None or output.elements > 4000 or (output.shape[1:2] != (1,) and b.random.random() < 0.8):
            del b.nodes[before:]
            continue
        if output.quant is not None and len(output.shape) == 4:
            values.append(output)
    read = {name for node in b.nodes for name in node.inputs}
    made = [b.tensors[name] for node in b.nodes for name in node.outputs]
    return b.graph([value for value in made if value.name not in read])


BATCHED = (*SPATIAL, "mean", "fully_connected", "prelu", "batch_matmul", "transpose")


def batched_graph(seed: int, batches: int) -> Graph:
    """Several images of up to 12 rows through 4 or more operators with branches; what nobody reads is an output."""
    b = random_graphs.Builder(seed)
    values = [b.input((batches, 3 + b.up_to(9), 2 + b.up_to(6), b.up_to(9)))]
    count = 4 + b.up_to(8)
    while len(b.nodes) < count:
        source = values[-1 - int(b.random.integers(min(3, len(values))))]
        before = len(b.nodes)
        name = BATCHED[int(b.random.integers(len(BATCHED)))]
        sampler = same_shape if b.random.random() < 0.25 else random_graphs.SAMPLERS[name]
        output = sampler(b, source)
        if output is None or output.quant is None or output.elements > 9000:
            del b.nodes[before:]
        elif len(output.shape) == 4:
            values.append(output)
    read = {name for node in b.nodes for name in node.inputs}
    made = [b.tensors[name] for node in b.nodes for name in node.outputs]
    return b.graph([value for value in made if value.name not in read])


IN_CHAINS = (
    "conv_2d",
    "conv_2d",
    "depthwise_conv_2d",
    "depthwise_conv_2d",
    "max_pool_2d",
    "average_pool_2d",
    "logistic",
)
"""Operators whose calls can be parts of chains, the usual ones twice."""


def chain_graph(seed: int) -> Graph:
    """An image of up to 24 rows and columns through 3 to 6 operators, one behind the other."""
    b = random_graphs.Builder(seed)
    value = b.input((1, 8 + b.up_to(16), 8 + b.up_to(16), b.up_to(20)))
    count = 2 + b.up_to(4)
    for _ in range(60):
        if len(b.nodes) == count:
            break
        made = random_graphs.SAMPLERS[IN_CHAINS[int(b.random.integers(len(IN_CHAINS)))]](b, value)
        if made is None:
            continue
        if made.elements > 12000 or made.shape[1] < 2 or made.shape[2] < 2:
            b.nodes.pop()
        else:
            value = made
    return b.graph([value])


def convolution(b: random_graphs.Builder, source: Tensor, filters: int, kernel: tuple[int, int]) -> Tensor:
    """Add a convolution that keeps rows and columns, with a bias."""
    shape = (filters, *kernel, source.shape[3])
    operands = random_layers.weights_and_bias(
        b, shape, 0, source, kernel[0] * kernel[1] * source.shape[3], always_bias=True
    )
    window = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "activation": "NONE"}
    return b.node("conv_2d", [source, *operands], b.new((*source.shape[:3], filters)), **window)
