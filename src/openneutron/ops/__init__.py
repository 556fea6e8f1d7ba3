# SPDX-License-Identifier: BSD-3-Clause
"""The operator table: one row per operator, looked up by every stage."""

from __future__ import annotations

from dataclasses import replace

from openneutron.ir import Graph, Node
from openneutron.ops import (
    blocks,
    cast,
    choice,
    conv,
    elementwise,
    filled,
    indexed,
    matmul,
    pieces,
    places,
    pool,
    resize,
    shape,
    softmax,
    transposed,
)
from openneutron.ops.on_cpu import ON_CPU
from openneutron.ops.table import Attribute, Op, Operand, Quantization, Role

OPS: tuple[Op, ...] = tuple(
    row
    for family in (
        *(conv, pool, elementwise, shape, resize, softmax, indexed),
        *(pieces, matmul, transposed, choice, blocks, places, filled, cast),
    )
    for row in family.OPS
)
BY_NAME = {op.name: op for op in OPS}
BY_LITERT = {op.litert: op for op in OPS if op.litert}


def reject(graph: Graph, node: Node) -> str | None:
    """Return the reason why this node can't be compiled, or None.

    Reasons: the operator has no row, or the node or one of its parts breaks a limit (the first one is named).
    """
    op = BY_NAME.get(node.op)
    if op is None:
        return ON_CPU.get(node.op, f"there is no kernel for {node.op}")
    reason = op.reject(graph, node)
    if reason is not None or op.made_of is None:
        return reason
    parts = op.made_of(graph, node)
    whole = replace(graph, tensors={**graph.tensors, **{tensor.name: tensor for tensor in parts.tensors}})
    return next((reason for part in parts.nodes if (reason := reject(whole, part)) is not None), None)


__all__ = ["BY_LITERT", "BY_NAME", "ON_CPU", "OPS", "Attribute", "Op", "Operand", "Quantization", "Role", "reject"]
