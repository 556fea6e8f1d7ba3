# SPDX-License-Identifier: BSD-3-Clause
"""Split weights with a zero point, which uint8 models have, into several sets of int8 weights over copies of the input.

A weight less its zero point is between -255 and 255. This difference is a sum of two int8 numbers, or of three where it
is 255; the sum of the products stays the same modulo 2^32 in any order. The pass therefore repeats the input's channels
once for each set and concatenates the sets along the channels. A depthwise convolution has one channel for each output,
so there the rows of the input and of the kernel are repeated.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from openneutron.ir import Graph, Node, QuantParams, Tensor, constant
from openneutron.ops.conv import explicit_padding
from openneutron.ops.transposed import INPUT, WEIGHTS

Weights = npt.NDArray[np.int8]

_OPERANDS = {
    "conv_2d": (0, 1),
    "depthwise_conv_2d": (0, 1),
    "fully_connected": (0, 1),
    "transpose_conv": (INPUT, WEIGHTS),
}
"""The operand positions of the input and the weights."""


def split_weights(graph: Graph) -> Graph:
    """Return the graph with symmetric weights only."""
    nodes: list[Node] = []
    tensors: list[Tensor] = []
    for node in graph.nodes:
        weights = graph.operand(node, _OPERANDS[node.op][1]) if node.op in _OPERANDS else None
        if weights is None or weights.quant is None or not any(weights.quant.zero_points):
            nodes.append(node)
            continue
        more_nodes, more_tensors = _Split(graph, node).done()
        nodes += more_nodes
        tensors += more_tensors
    return graph.rebuilt(nodes, tensors) if tensors else graph


def parts_of(differences: npt.NDArray[np.int16]) -> list[Weights]:
    """Return int8 arrays whose sum equals the values, as few arrays as possible, at least one."""
    parts: list[Weights] = []
    while not parts or differences.any():
        part = np.clip(differences, -128, 127)
        parts.append(part.astype(np.int8))
        differences = differences - part
    return parts


class _Split:
    """The split weights of one node."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph, self._node = graph, node
        self._data_place, self._weights_place = _OPERANDS[node.op]
        self._data, weights = graph.given(node, self._data_place), graph.given(node, self._weights_place)
        assert weights.data is not None and weights.quant is not None
        self._weights = weights
        self._parts = parts_of(weights.data.astype(np.int16) - weights.quant.zero_point)
        self._nodes: list[Node] = []
        self._tensors: list[Tensor] = []

    def done(self) -> tuple[list[Node], list[Tensor]]:
        """Return the nodes that replace the node, and their new tensors."""
        node, copies = self._node, len(self._parts)
        if copies == 1:
            source, weights = self._data.name, self._parts[0]
        elif node.op == "depthwise_conv_2d":
            source, weights = self._doubled_rows()
            _, height, width, _ = self._data.shape
            padding = explicit_padding(node, height, width, *self._weights.shape[1:3])
            node = node.with_attrs(
                padding=(copies * padding[0], copies * padding[1], *padding[2:]),
                stride_h=copies * node["stride_h"],
                dilation_h=1,
            )
        else:
            source = self._beside_itself(self._weights.shape[-1])
            weights = np.concatenate(self._parts, axis=-1)
        assert self._weights.quant is not None
        quant = QuantParams(self._weights.quant.scales, (0,))
        name = self._name("weights")
        self._tensors.append(constant(name, weights, quant))
        inputs = list(node.inputs)
        inputs[self._data_place], inputs[self._weights_place] = source, name
        return [*self._nodes, replace(node, inputs=tuple(inputs))], self._tensors

    def _beside_itself(self, channels: int) -> str:
        """Return the input with each group of ``channels`` channels repeated once for each part."""
        copies, shape = len(self._parts), self._data.shape
        if len(shape) == 4 and shape[-1] == channels:
            return self._joined(self._data.name, shape, 3)
        groups = (math.prod(shape) // channels, channels)
        wide = self._joined(self._reshaped(self._data.name, groups, "groups"), groups, 1)
        if self._node.op == "fully_connected" and not self._node["keep_num_dims"]:
            return wide
        return self._reshaped(wide, (*shape[:-1], copies * shape[-1]), "input")

    def _doubled_rows(self) -> tuple[str, Weights]:
        """Return the input with each row repeated once for each part, and the kernel with one row of each part for each
        of its rows."""
        copies, (batches, height, width, channels) = len(self._parts), self._data.shape
        # In memory, rows repeated along the width equal repeated rows.
        wide = self._joined(self._data.name, self._data.shape, 2)
        _, kernel_h, kernel_w, filters = self._weights.shape
        dilation = self._node["dilation_h"]
        taps = np.zeros((1, (kernel_h - 1) * dilation + 1, copies, kernel_w, filters), np.int8)
        taps[:, ::dilation] = np.stack(self._parts, axis=2)
        return (
            self._reshaped(wide, (batches, copies * height, width, channels), "input"),
            taps.reshape(1, -1, kernel_w, filters),
        )

    def _joined(self, source: str, shape: tuple[int, ...], axis: int) -> str:
        """Return the tensor concatenated with itself along an axis, once for each part."""
        copies = len(self._parts)
        name = self._tensor("copies", (*shape[:axis], copies * shape[axis], *shape[axis + 1 :]))
        attrs = {"axis": axis, "activation": "NONE"}
        self._nodes.append(Node("concatenation", (source,) * copies, (name,), attrs, self._node.source))
        return name

    def _reshaped(self, source: str, shape: tuple[int, ...], part: str) -> str:
        name = self._tensor(part, shape)
        self._nodes.append(Node("reshape", (source,), (name,), {"new_shape": shape}, self._node.source))
        return name

    def _tensor(self, part: str, shape: tuple[int, ...]) -> str:
        name = self._name(part)
        self._tensors.append(replace(self._data, name=name, shape=shape))
        return name

    def _name(self, part: str) -> str:
        return self._graph.free_name(f"{self._node.name}/{part}")
