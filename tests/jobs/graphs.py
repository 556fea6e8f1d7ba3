# SPDX-License-Identifier: BSD-3-Clause
"""Graphs of one product with random weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from openneutron.ir import DType, Graph, Node, Tensor, constant, per_channel, per_tensor
from tests.support import oracle

BOUNDS = {8: (-127, 127), 4: (-8, 7)}
"""The least and the largest weight, by the bits of the weights."""


def convolution(inputs: int, outputs: int, kernel: int = 1, size: int = 5, stride: int = 1, bits: int = 8) -> Graph:
    """A convolution of an image of ``size`` by ``size`` with SAME padding."""
    rng = np.random.default_rng(inputs)
    quant, scales = per_tensor(0.1, 3), per_channel([0.001] * outputs, 0)
    least, most = BOUNDS[bits]
    weights = rng.integers(least, most + 1, (outputs, kernel, kernel, inputs)).astype(np.int8)
    attrs = {"padding": "SAME", "stride_h": stride, "stride_w": stride, "dilation_h": 1, "dilation_w": 1}
    rows = -(-size // stride)
    tensors = [
        Tensor("x", (1, size, size, inputs), DType.INT8, quant),
        constant("w", weights, scales),
        constant("b", rng.integers(-1000, 1000, outputs).astype(np.int32)),
        Tensor("y", (1, rows, rows, outputs), DType.INT8, per_tensor(0.5, -5)),
    ]
    node = Node("conv_2d", ("x", "w", "b"), ("y",), {**attrs, "activation": "NONE"}, "layer")
    return Graph("main", {tensor.name: tensor for tensor in tensors}, (node,), ("x",), ("y",))


def linear(rows: int, inputs: int, outputs: int, bits: int = 4, values: NDArray[np.int8] | None = None) -> Graph:
    """A linear layer with weights of 8 or 4 bits, or with these ``values`` [outputs, inputs]."""
    rng = np.random.default_rng(inputs)
    x, y = oracle.activation("x", (rows, inputs), 0.05, 3), oracle.activation("y", (rows, outputs), 0.5, -5)
    scales = per_channel(rng.uniform(0.001, 0.01, outputs), 0)
    least, most = BOUNDS[bits]
    weights = rng.integers(least, most + 1, (outputs, inputs)).astype(np.int8) if values is None else values
    tensors = [
        constant("w", weights, scales),
        constant("b", rng.integers(-1000, 1000, outputs).astype(np.int32)),
        y,
    ]
    attrs = {"activation": "NONE", "keep_num_dims": False, "weights_format": "DEFAULT"}
    return oracle.graph_of([x], [Node("fully_connected", ("x", "w", "b"), ("y",), attrs)], tensors, ["y"])
