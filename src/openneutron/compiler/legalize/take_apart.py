# SPDX-License-Identifier: BSD-3-Clause
"""Operators that are made of others, replaced by these."""

from __future__ import annotations

from collections.abc import Iterator

from openneutron.ir import Graph, Node, Tensor
from openneutron.ops import BY_NAME


def take_apart(graph: Graph) -> Graph:
    """Return the graph with every node whose row says what it is made of replaced by those nodes."""
    tensors: dict[str, Tensor] = {}
    return graph.rebuilt([part for node in graph.nodes for part in _parts(graph, node, tensors)], tensors.values())


def _parts(graph: Graph, node: Node, tensors: dict[str, Tensor]) -> Iterator[Node]:
    made_of = BY_NAME[node.op].made_of
    if made_of is None:
        yield node
        return
    parts = made_of(graph, node)
    tensors |= {tensor.name: tensor for tensor in parts.tensors}
    inner = graph.rebuilt((*graph.nodes, *parts.nodes), parts.tensors)
    for part in parts.nodes:
        yield from _parts(inner, part, tensors)
