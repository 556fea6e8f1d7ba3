# SPDX-License-Identifier: BSD-3-Clause
"""Operators that are made of others, replaced by these."""

from __future__ import annotations

from dataclasses import replace

from openneutron.ir import Graph, Node
from openneutron.ops import BY_NAME


def take_apart(graph: Graph) -> Graph:
    """Return the graph with every node whose row says what it is made of replaced by those nodes, and these by theirs."""
    nodes: list[Node] = []
    for node in graph.nodes:
        made_of = BY_NAME[node.op].made_of
        if made_of is None:
            nodes.append(node)
            continue
        parts = made_of(graph, node)
        tensors = {**graph.tensors, **{tensor.name: tensor for tensor in parts.tensors}}
        inner = take_apart(replace(graph, tensors=tensors, nodes=parts.nodes))
        graph = replace(graph, tensors={**tensors, **inner.tensors})
        nodes += inner.nodes
    return graph.rebuilt(nodes)
