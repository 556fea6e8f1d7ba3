# SPDX-License-Identifier: BSD-3-Clause
"""Legalized graphs to kernel calls and the memory that they read and write."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from openneutron.compiler.graph.legalize import VIEWS
from openneutron.compiler.select import rules
from openneutron.compiler.select.calls import SELECT_RULES, KernelCall
from openneutron.compiler.select.fold_moves import copies_as_views, fold_moves
from openneutron.compiler.select.storage import Storages, share
from openneutron.ir import Graph, Node

assert rules.FAMILIES

Selection = tuple[Storages, list[KernelCall]]
"""A legalized graph's storages and kernel calls, ready to compile."""


def select_node(graph: Graph, node: Node) -> list[KernelCall]:
    """Return the kernel calls of one legalized node, in order; asserts that they are complete."""
    calls = SELECT_RULES[node.op](graph, node)
    for call in calls:
        call.verify()
    return calls


def select_calls(legal: Graph, known: Mapping[str, list[KernelCall]] = MappingProxyType({})) -> Selection:
    """Return the storages of a legalized graph and its kernel calls in execution order, copies for views included. ``known``: calls
    of nodes that are selected already, by the nodes' names."""
    storages, copies = share(legal)
    calls: list[KernelCall] = []
    for name in (*legal.inputs, *(n for n, tensor in legal.tensors.items() if tensor.is_constant)):
        calls += copies.get(name, [])
    for node in legal.nodes:
        if node.op not in VIEWS:
            calls += known[node.name] if node.name in known else select_node(legal, node)
        for name in node.outputs:
            calls += copies.get(name, [])
    return storages, fold_moves(storages, calls)


def selections(legal: Graph, known: Mapping[str, list[KernelCall]] = MappingProxyType({})) -> list[Selection]:
    """Return the selections to compile: ``select_calls``, and where some of its copies can be views (copies_as_views) that too: it is
    faster, and in cascades may take more memory. Whatever the budget, they are the same."""
    storages, calls = select_calls(legal, known)
    fewer = copies_as_views(storages, calls)
    if len(fewer) == len(calls):
        return [(storages, calls)]
    return [(storages, fewer), (storages, calls)]
