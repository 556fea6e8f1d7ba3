# SPDX-License-Identifier: BSD-3-Clause
"""int8 graphs as graphs of int16 activations: the same nodes and shapes, zero points of 0, constants over the whole range."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from openneutron.ir import DType, Graph, Node, Tensor, per_tensor


def widened(graph: Graph) -> Graph:
    """Return the graph with int16 in place of all quantized int8 tensors, weights included."""
    tensors = {name: _wide(tensor) for name, tensor in graph.tensors.items()}
    return replace(graph, tensors=tensors, nodes=tuple(_general(node) for node in graph.nodes))


def _wide(tensor: Tensor) -> Tensor:
    if tensor.dtype is not DType.INT8 or tensor.quant is None:
        return tensor
    data = None
    if tensor.data is not None:
        given = np.asarray(tensor.data, np.int16)
        # Of some values, which fill a pad for instance, both bytes are alike.
        data = np.where(given % 2, given * 256 + given * 37 % 256, given * 256 + (given & 255)).astype(np.int16)
    return replace(tensor, dtype=DType.INT16, quant=per_tensor(tensor.quant.scale, 0), data=data)


def _general(node: Node) -> Node:
    return node.with_attrs(pot_scale_int16=False) if node.op in ("add", "sub") else node
