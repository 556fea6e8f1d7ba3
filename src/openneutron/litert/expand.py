# SPDX-License-Identifier: BSD-3-Clause
"""Operators that LiteRT does not have, stated with those it has.

A table of 256 entries is a GATHER whose index is the stored value plus 128, computed by a CAST and an ADD of integers.
A softmax with an output scale of its own is SOFTMAX to int16 and QUANTIZE to int8.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from openneutron.ir import DType, Graph, Node, Tensor, constant, per_tensor
from openneutron.ops import BY_NAME
from openneutron.ops.softmax import WIDE


def expanded(graph: Graph) -> Graph:
    """Return the graph with LiteRT's operators alone; the same graph where it has no others."""
    if all(BY_NAME[node.op].litert for node in graph.nodes):
        return graph
    tensors, nodes = dict(graph.tensors), []
    for node in graph.nodes:
        if node.op == "lookup":
            nodes += _lookup(tensors, node)
        elif node.op == "softmax_rescaled":
            nodes += _softmax(tensors, node)
        else:
            assert BY_NAME[node.op].litert, f"LiteRT has no operator for {node.op}"
            nodes.append(node)
    return dataclasses.replace(graph, tensors=tensors, nodes=tuple(nodes))


def _lookup(tensors: dict[str, Tensor], node: Node) -> list[Node]:
    data, table = node.inputs
    assert data is not None and table is not None
    name = node.outputs[0]
    shape = tensors[data].shape
    wide, index, offset = (f"{name}/{piece}" for piece in ("wide", "index", "offset"))
    for tensor in (
        Tensor(wide, shape, DType.INT32),
        Tensor(index, shape, DType.INT32),
        constant(offset, np.array(128, np.int32)),
    ):
        assert tensor.name not in tensors, f"{tensor.name} is there already"
        tensors[tensor.name] = tensor
    return [
        Node("cast", (data,), (wide,), {}, node.source),
        Node("add", (wide, offset), (index,), {}, node.source),
        Node("gather", (table, index), (name,), {}, node.source),
    ]


def _softmax(tensors: dict[str, Tensor], node: Node) -> list[Node]:
    (data,), (name,) = node.inputs, node.outputs
    assert data is not None
    wide = Tensor(f"{name}/wide", tensors[name].shape, DType.INT16, per_tensor(*WIDE))
    assert wide.name not in tensors, f"{wide.name} is there already"
    tensors[wide.name] = wide
    return [
        Node("softmax", (data,), (wide.name,), node.attrs, node.source),
        Node("quantize", (wide.name,), (name,), {}, node.source),
    ]
