# SPDX-License-Identifier: BSD-3-Clause
"""Graphs of normalizations, linear layers and sums on tokens, as in the blocks of transformers."""

from __future__ import annotations

import numpy as np

from openneutron.ir import Graph, Node, Tensor, constant, per_channel
from tests.support import oracle

LINEAR = {"activation": "NONE", "weights_format": "DEFAULT", "keep_num_dims": True}
NORM = {"epsilon": 1e-5, "centred": True}


class Block:
    """Operators on the tokens of ``shape``, one after the other; each method adds one and returns the name of its result."""

    def __init__(self, shape: tuple[int, ...] = (1, 7, 24), seed: int = 0) -> None:
        self.shape, self.random = shape, np.random.default_rng(seed)
        self.x = oracle.activation("x", shape, 0.05, 5)
        self.nodes: list[Node] = []
        self.tensors: dict[str, Tensor] = {}

    def _add(self, node: Node, channels: int, scale: float, zero_point: int) -> str:
        self.nodes.append(node)
        self.tensors[node.name] = oracle.activation(node.name, (*self.shape[:-1], channels), scale, zero_point)
        return node.name

    def _channels(self, name: str) -> int:
        return self.tensors[name].shape[-1] if name in self.tensors else self.shape[-1]

    def norm(self, source: str) -> str:
        name, channels = f"n{len(self.nodes)}", self._channels(source)
        factors = self.random.normal(1, 0.2, channels).astype(np.float32)
        offsets = self.random.normal(0, 0.2, channels).astype(np.float32)
        self.tensors |= {f"{name}/g": constant(f"{name}/g", factors), f"{name}/b": constant(f"{name}/b", offsets)}
        return self._add(Node("layer_norm", (source, f"{name}/g", f"{name}/b"), (name,), NORM), channels, 0.03, -4)

    def linear(self, source: str, channels: int, zero_point: int = -9) -> str:
        name, inputs = f"y{len(self.nodes)}", self._channels(source)
        weights = self.random.integers(-127, 128, (channels, inputs)).astype(np.int8)
        scales = self.random.uniform(0.002, 0.02, channels)
        bias = self.random.integers(-900, 900, channels).astype(np.int32)
        own = self.tensors[source].quant if source in self.tensors else self.x.quant
        assert own is not None
        self.tensors[f"{name}/w"] = constant(f"{name}/w", weights, per_channel([float(each) for each in scales], 0))
        self.tensors[f"{name}/c"] = constant(
            f"{name}/c", bias, per_channel([float(each) * own.scales[0] for each in scales], 0)
        )
        return self._add(
            Node("fully_connected", (source, f"{name}/w", f"{name}/c"), (name,), LINEAR), channels, 0.07, zero_point
        )

    def gelu(self, source: str) -> str:
        node = Node("gelu", (source,), (f"g{len(self.nodes)}",), {"approximate": False})
        return self._add(node, self._channels(source), 0.05, -100)

    def add(self, one: str, other: str) -> str:
        node = Node("add", (one, other), (f"s{len(self.nodes)}",), {"activation": "NONE"})
        return self._add(node, self._channels(one), 0.09, 2)

    def graph(self, *outputs: str) -> Graph:
        return oracle.graph_of([self.x], self.nodes, list(self.tensors.values()), outputs)


def feed_forward(block: Block, source: str, before: bool) -> str:
    """Add two linear layers with an activation between them and a residual sum behind them; ``before``: a normalization too."""
    hidden = block.gelu(block.linear(block.norm(source) if before else source, 40))
    return block.add(block.linear(hidden, block.shape[-1]), source)


def chained(shape: tuple[int, ...] = (1, 7, 24)) -> dict[str, Graph]:
    """Return a graph of one call of each kernel that runs two kernels of a sequence, by the kernel's name."""
    blocks = [Block(shape, seed) for seed in range(7)]
    one, two, three, four, five, six, seven = blocks
    parts = seven.norm("x")
    wide, narrow = seven.linear(parts, 16, 3), seven.linear(parts, 8, 8)
    return {
        "layer_norm_conv_2d_1x1_s8": one.graph(one.linear(one.norm("x"), 12)),
        "layer_norm_conv_2d_1x1_lookup_s8": two.graph(two.gelu(two.linear(two.norm("x"), 20))),
        "feed_forward_s8": three.graph(feed_forward(three, "x", False)),
        "layer_norm_feed_forward_s8": four.graph(feed_forward(four, "x", True)),
        "feed_forward_layer_norm_s8": five.graph(five.norm(feed_forward(five, "x", False))),
        "conv_2d_1x1_add_layer_norm_s8": six.graph(six.norm(six.add(six.linear("x", shape[-1]), "x"))),
        "layer_norm_conv_2d_1x1_parts_s8": seven.graph(
            seven.add(wide, wide), seven.gelu(wide), seven.add(narrow, narrow), seven.gelu(narrow)
        ),
    }


def merged(zero_points: tuple[int, int, int]) -> Graph:
    """Return three linear layers of one input, whose results have these zero points and two readers each."""
    block = Block()
    one, two, three = (block.linear("x", 16, zero_point) for zero_point in zero_points)
    return block.graph(block.add(one, two), block.add(two, three), block.add(three, one))
