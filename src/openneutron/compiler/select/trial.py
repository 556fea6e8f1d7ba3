# SPDX-License-Identifier: BSD-3-Clause
"""Whether a graph would compile, for a small part of what compiling it costs."""

from __future__ import annotations

from dataclasses import dataclass

from openneutron import ops
from openneutron.compiler.graph.legalize import VIEWS, legalize
from openneutron.compiler.select.select import select_node
from openneutron.errors import OpenNeutronError
from openneutron.ir import Graph


@dataclass(frozen=True, slots=True)
class Refused:
    """The result of the first node that the compiler has no kernel calls for, and why."""

    result: str
    reason: str


def try_compile(graph: Graph) -> Refused | None:
    """What ``compile_graph`` would refuse whatever the budget, or None."""
    for node in graph.nodes:
        reason = ops.reject(graph, node)
        if reason is not None:
            return Refused(node.outputs[0], reason)
    legal = legalize(graph)
    for node in legal.nodes:
        if node.op in VIEWS:
            continue
        try:
            select_node(legal, node)
        except OpenNeutronError as error:
            return Refused(node.outputs[0], str(error).rstrip("."))
    return None
