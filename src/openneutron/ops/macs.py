# SPDX-License-Identifier: BSD-3-Clause
"""Multiply-accumulates of a node, on the NPU or the CPU."""

from __future__ import annotations

import math

from openneutron.ir import Graph, Node, Tensor

RANK_OF_WEIGHTS = {"conv_2d": 4, "depthwise_conv_2d": 4, "fully_connected": 2, "batch_matmul": 2, "transpose_conv": 4}
"""The operators that multiply and accumulate, with the smallest rank of their second operand."""


def macs(graph: Graph, node: Node) -> int:
    """Return the multiply-accumulates of a convolution or matrix product, 0 for other operators.

    The operands' types do not matter: a float convolution counts too. Weights are [outputs, height, width, inputs] for
    a convolution, [1, height, width, outputs] for a depthwise convolution, [outputs, inputs] for a fully connected
    layer, as in LiteRT.
    """
    op = node.op
    operands = [graph[name] for name in node.inputs if name is not None]
    if op not in RANK_OF_WEIGHTS or len(operands) < 2 or len(operands[1].shape) < RANK_OF_WEIGHTS[op]:
        return 0
    result = graph[node.outputs[0]]
    if op == "transpose_conv" and len(operands) > 2:
        # The operands are output shape, weights, input: each input value is multiplied by all weights of its channel.
        return _elements(operands[2]) * math.prod(operands[1].shape[:3])
    factor = operands[1].shape
    if op == "conv_2d":
        return _elements(result) * math.prod(factor[1:])
    if op == "depthwise_conv_2d":
        return _elements(result) * math.prod(factor[1:3])
    if op == "fully_connected":
        return _elements(result) * factor[-1]
    return _elements(result) * operands[0].shape[-2 if node["adj_x"] else -1]


def _elements(tensor: Tensor) -> int:
    return math.prod(tensor.shape)
