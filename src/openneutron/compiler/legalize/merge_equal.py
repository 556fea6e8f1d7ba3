# SPDX-License-Identifier: BSD-3-Clause
"""Merge equal nodes, such as the one-hot row of a position with which a model writes several caches, or the mask of several layers."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from openneutron.ir import Graph, Node, Tensor

Key = tuple[object, ...]


def merge_equal(graph: Graph) -> Graph:
    """Return the graph with one node for all nodes of the same operator, attributes, operands and type of result.

    Constant operands are the same where their values are. A node whose result leaves the graph, or is the new value of a state,
    stays, and so does a node with several results.
    """
    kept = set(graph.kept_tensors)
    first_of: dict[Key, list[Node]] = defaultdict(list)
    instead: dict[str, str] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        node = replace(node, inputs=tuple(None if name is None else instead.get(name, name) for name in node.inputs))
        if len(node.outputs) == 1 and any(name is not None and not graph[name].is_constant for name in node.inputs):
            alike = first_of[_key(graph, node)]
            equal = next((other for other in alike if _same_constants(graph, node, other)), None)
            if equal is not None and node.name not in kept:
                instead[node.name] = equal.name
                continue
            if equal is None:
                alike.append(node)
        nodes.append(node)
    return graph.rebuilt(nodes) if instead else graph


def _key(graph: Graph, node: Node) -> Key:
    """Return a key that equal nodes share, apart from the values of their constants."""
    operands = tuple(None if name is None else _constant_type(graph[name]) or name for name in node.inputs)
    return node.op, repr(sorted(node.attrs.items())), operands, _type(graph[node.name])


def _constant_type(tensor: Tensor) -> Key | None:
    return _type(tensor) if tensor.is_constant else None


def _type(tensor: Tensor) -> Key:
    return tensor.shape, tensor.dtype, tensor.quant


def _same_constants(graph: Graph, node: Node, other: Node) -> bool:
    pairs = zip(node.inputs, other.inputs, strict=True)
    return all(a == b or _same_values(graph[str(a)], graph[str(b)]) for a, b in pairs)


def _same_values(a: Tensor, b: Tensor) -> bool:
    """Return whether two constants hold the same values. Only the shape of data without strides is known."""
    if a.data is None or b.data is None:
        return False
    known = all(data.size == 1 or any(data.strides) for data in (a.data, b.data))
    return known and np.array_equal(a.data, b.data)
