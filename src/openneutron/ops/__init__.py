# SPDX-License-Identifier: BSD-3-Clause
"""The operator table: one row per operator, looked up by every stage."""

from __future__ import annotations

from openneutron.ir import Graph, Node
from openneutron.ops import choice, conv, elementwise, indexed, matmul, pieces, pool, resize, shape, softmax, transposed
from openneutron.ops.table import Attribute, Op, Operand, Quantization, Role

OPS: tuple[Op, ...] = (
    *conv.OPS,
    *pool.OPS,
    *elementwise.OPS,
    *shape.OPS,
    *resize.OPS,
    *softmax.OPS,
    *indexed.OPS,
    *pieces.OPS,
    *matmul.OPS,
    *transposed.OPS,
    *choice.OPS,
)
BY_NAME = {op.name: op for op in OPS}
BY_LITERT = {op.litert: op for op in OPS if op.litert}


def reject(graph: Graph, node: Node) -> str | None:
    """Why this node can't be compiled, in words, or None: no row for it, or the first limit it breaks."""
    op = BY_NAME.get(node.op)
    if op is None:
        return f"there is no kernel for {node.op}"
    return op.reject(graph, node)


__all__ = ["BY_LITERT", "BY_NAME", "OPS", "Attribute", "Op", "Operand", "Quantization", "Role", "reject"]
