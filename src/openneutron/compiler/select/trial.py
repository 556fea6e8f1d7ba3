# SPDX-License-Identifier: BSD-3-Clause
"""The trial of a compile: its first stages, for a small part of its cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from openneutron import ops
from openneutron.compiler.graph.legalize import VIEWS, legalize
from openneutron.compiler.select.calls import KernelCall
from openneutron.compiler.select.select import select_node
from openneutron.errors import OpenNeutronError
from openneutron.ir import Graph


@dataclass(frozen=True, slots=True)
class Refused:
    """The result of the first node that the compiler has no kernel calls for, and why."""

    result: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A graph that would compile, legalized, with the kernel calls of each node by its name. ``compile_graph`` takes it up."""

    graph: Graph = field(repr=False)
    legal: Graph = field(repr=False)
    calls: Mapping[str, list[KernelCall]] = field(repr=False)


def try_compile(graph: Graph) -> Refused | Trial:
    """Return what ``compile_graph`` would refuse whatever the budget; otherwise the first stages of the compile."""
    for node in graph.nodes:
        reason = ops.reject(graph, node)
        if reason is not None:
            return Refused(node.outputs[0], reason)
    legal = legalize(graph)
    calls: dict[str, list[KernelCall]] = {}
    for node in legal.nodes:
        if node.op in VIEWS:
            continue
        try:
            calls[node.name] = select_node(legal, node)
        except OpenNeutronError as error:
            return Refused(node.outputs[0], str(error).rstrip("."))
    return Trial(graph, legal, calls)
