# SPDX-License-Identifier: BSD-3-Clause
"""Operators that move no byte become reshapes, which cost nothing."""

from __future__ import annotations

from openneutron.ir import Graph, Node
from openneutron.ops.shape import pads, slice_window
from openneutron.ops.table import constant_values

VIEWS = ("reshape", "squeeze", "expand_dims", "bitcast")
"""Operators whose output is their input's memory under another shape."""


def rename_identities(graph: Graph) -> Graph:
    """The graph with every operator that leaves all bytes where they are turned into a reshape."""
    return graph.rebuilt(
        Node("reshape", node.inputs[:1], node.outputs, {"new_shape": graph[node.name].shape}, node.source)
        if node.op in VIEWS or _moves_nothing(graph, node)
        else node
        for node in graph.nodes
    )


def _moves_nothing(graph: Graph, node: Node) -> bool:
    data = graph.operand(node, 0)
    assert data is not None
    if node.op == "transpose":
        permutation = constant_values(graph, node, 1)
        moved = [axis for axis in permutation if data.shape[axis] != 1]
        return moved == sorted(moved)
    if node.op == "slice":
        return slice_window(graph, node)[1] == data.shape
    if node.op in ("pad", "padv2"):
        return not any(amount for pair in pads(graph, node) for amount in pair)
    if node.op == "concatenation":
        return len(node.inputs) == 1
    if node.op == "quantize":
        return (data.dtype, data.quant) == (graph[node.name].dtype, graph[node.name].quant)
    if node.op == "resize_nearest_neighbor":
        # With both, every position is rounded up by a half: a shift by one.
        shifted = node["align_corners"] and node["half_pixel_centers"]
        return data.shape == graph[node.name].shape and not shifted
    return False
