# SPDX-License-Identifier: BSD-3-Clause
"""Nodes to kernel calls: one rule for each operator, in its family's file."""

from __future__ import annotations

from openneutron.compiler.calls import SELECT_RULES, KernelCall
from openneutron.compiler.select import (
    cast,
    choice,
    conv,
    data_movement,
    elementwise,
    indexed,
    lookup,
    matmul,
    pool,
    softmax,
    transposed,
)
from openneutron.ir import Graph, Node

FAMILIES = (cast, choice, conv, data_movement, elementwise, indexed, lookup, matmul, pool, softmax, transposed)


def select_node(graph: Graph, node: Node) -> list[KernelCall]:
    """The kernel calls of one legalized node, in order; asserts that they are complete."""
    calls = SELECT_RULES[node.op](graph, node)
    for call in calls:
        call.verify()
    return calls


__all__ = ["FAMILIES", "SELECT_RULES", "select_node"]
