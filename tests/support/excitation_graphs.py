# SPDX-License-Identifier: BSD-3-Clause
"""Squeeze-excite blocks: the mean of an image, two small layers, and the product of their result with the image."""

from __future__ import annotations

import numpy as np

from openneutron.ir import Graph, Node, Tensor, constant, per_channel
from tests.support import oracle

LAYER = {
    "padding": "VALID",
    "stride_h": 1,
    "stride_w": 1,
    "dilation_h": 1,
    "dilation_w": 1,
    "activation": "NONE",
}
ACTIVATIONS = ("NONE", "RELU", "gelu", "hard_swish")


def squeeze_excite(
    seed: int,
    activation: str = "RELU",
    gate: str = "logistic",
    shape: tuple[int, ...] = (1, 5, 6, 20),
    hidden: int = 12,
    outputs: tuple[str, ...] = ("z",),
    turned: bool = False,
) -> Graph:
    """Return the block; ``activation`` is that of the first layer, fused or an operator, ``gate`` the operator behind the second one, or
    "". ``turned``: the image is the second operand of the product."""
    random = np.random.default_rng(seed)
    channels = shape[3]
    tensors: list[Tensor] = []
    nodes: list[Node] = []

    def compute(op: str, inputs: tuple[str, ...], tensor: Tensor, **attrs: object) -> str:
        tensors.append(tensor)
        nodes.append(Node(op, inputs, (tensor.name,), attrs))
        return tensor.name

    def layer(name: str, source: str, inputs: int, count: int, activation: str) -> str:
        scales = (random.uniform(0.5, 1.5, count) * 0.01).tolist()
        weights = random.integers(-127, 128, (count, 1, 1, inputs)).astype(np.int8)
        biases = random.integers(-900, 900, count).astype(np.int32)
        tensors.append(constant(f"{name}/w", weights, per_channel(scales, 0)))
        tensors.append(constant(f"{name}/b", biases, per_channel([0.03 * each for each in scales], 0)))
        fused = activation if activation in ("NONE", "RELU") else "NONE"
        result = oracle.activation(name, (shape[0], 1, 1, count), 0.05, int(random.integers(-20, 20)))
        made = compute("conv_2d", (source, f"{name}/w", f"{name}/b"), result, **{**LAYER, "activation": fused})
        if activation == fused:
            return made
        zero = -128 if activation == "logistic" else int(random.integers(-120, -90))
        after = oracle.activation(f"{name}/{activation}", result.shape, 1 / 256 if zero == -128 else 0.03, zero)
        return compute(activation, (made,), after, **({"approximate": False} if activation == "gelu" else {}))

    x = oracle.activation("x", shape, 0.04, int(random.integers(-60, 60)))
    axes = constant("axes", np.array([1, 2], np.int32))
    tensors.append(axes)
    mean = compute("mean", ("x", "axes"), oracle.activation("m", (shape[0], 1, 1, channels), 0.03, 4), keep_dims=True)
    squeezed = layer("first", mean, channels, hidden, activation)
    excited = layer("second", squeezed, hidden, channels, gate or "NONE")
    z = oracle.activation("z", shape, 0.03, -7)
    compute("mul", (excited, "x") if turned else ("x", excited), z, activation="NONE")
    return oracle.graph_of([x], nodes, tensors, outputs)


def between_layers(seed: int) -> Graph:
    """Return a block between an expansion and a convolution of windows of 3x3, as in an inverted residual."""
    random = np.random.default_rng(seed)
    block = squeeze_excite(seed, shape=(1, 12, 10, 32), hidden=8)
    others = list(block.tensors.values())

    def layer(name: str, source: str, shape: tuple[int, ...], result: Tensor) -> Node:
        weights = random.integers(-127, 128, shape).astype(np.int8)
        biases = random.integers(-900, 900, shape[0]).astype(np.int32)
        others.append(constant(f"{name}/w", weights, per_channel([0.01] * shape[0], 0)))
        others.append(constant(f"{name}/b", biases, per_channel([0.0003] * shape[0], 0)))
        others.append(result)
        return Node("conv_2d", (source, f"{name}/w", f"{name}/b"), (result.name,), {**LAYER, "padding": "SAME"})

    image = oracle.activation("image", (1, 12, 10, 8), 0.03, 2)
    ahead = layer("ahead", "image", (32, 1, 1, 8), block["x"])
    behind = layer("behind", "z", (8, 3, 3, 32), oracle.activation("result", (1, 12, 10, 8), 0.2, 0))
    return oracle.graph_of([image], [ahead, *block.nodes, behind], others)
