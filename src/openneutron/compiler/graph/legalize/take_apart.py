# SPDX-License-Identifier: BSD-3-Clause
"""Replace operators that are compositions by their parts."""

from __future__ import annotations

from dataclasses import replace

from openneutron.ir import Graph, Node
from openneutron.ops import BY_NAME


def take_apart(graph: Graph) -> Graph:
    """Replace every node whose row has a composition (``made_of``) by its parts, recursively, and return the graph."""
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
