# SPDX-License-Identifier: BSD-3-Clause
"""Turn sums with a constant of zeros into reshapes, where LiteRT's ADD and SUB change no value."""

from __future__ import annotations

import numpy as np

from openneutron.ir import DType, Graph, Node, Tensor


def drop_zero_sums(graph: Graph) -> Graph:
    """Return the graph with every ADD and SUB that changes no value turned into a reshape of its other operand."""
    return graph.rebuilt(_rewritten(graph, node) for node in graph.nodes)


def _rewritten(graph: Graph, node: Node) -> Node:
    kept = unchanged_operand(graph, node)
    if kept is None:
        return node
    return Node("reshape", (kept,), node.outputs, {"new_shape": graph[node.name].shape}, node.source)


def unchanged_operand(graph: Graph, node: Node) -> str | None:
    """Return the operand of an ADD or SUB that equals the result for all values; None where neither operand does.

    LiteRT (add.cc, sub.cc) shifts each stored value, less its zero point, left by 20 bits. It multiplies the result by
    the operand's scale over twice the larger scale, and the sum by twice the larger scale over 2^20 times the output's
    scale. Where the output's scale equals the operand's, and the zeros' scale is not larger, these factors are 1/2 and
    1/2^19. Both are exact, and so is the result. Where the zeros' scale is larger, the first factor is rounded.
    """
    if node.op not in ("add", "sub") or node.attrs.get("activation", "NONE") != "NONE":
        return None
    result = graph[node.name]
    for data, zeros in ((0, 1), (1, 0))[: 2 if node.op == "add" else 1]:
        kept, other = graph.operand(node, data), graph.operand(node, zeros)
        if kept is None or other is None or kept.data is not None or not _is_zero(other):
            continue
        assert kept.quant is not None and other.quant is not None
        alike = kept.dtype is DType.INT8 and kept.shape == result.shape and kept.quant == result.quant
        if alike and np.float32(other.quant.scale) <= np.float32(kept.quant.scale):
            return kept.name
    return None


def _is_zero(tensor: Tensor) -> bool:
    quant = tensor.quant
    if tensor.data is None or tensor.dtype is not DType.INT8 or quant is None or quant.per_channel:
        return False
    return bool(np.all(tensor.data == quant.zero_point))
