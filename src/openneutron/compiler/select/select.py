# SPDX-License-Identifier: BSD-3-Clause
"""Select the kernel calls of a legalized graph, with the storages that they read and write, and try to compile a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.legalize.partition import type_reason
from openneutron.compiler.select import rules
from openneutron.compiler.select.calls import (
    SELECT_RULES,
    KernelCall,
    Storage,
    Storages,
    copied,
    kept_in_place,
    storages_of_states,
    updates,
    whole,
)
from openneutron.errors import OpenNeutronError
from openneutron.ir import Graph, Node
from openneutron.ops.shape import VIEWS
from openneutron.targets import Target


def share(graph: Graph) -> tuple[Storages, dict[str, list[KernelCall]]]:
    """Return the storages (blocks of memory) of a legalized graph, and the calls that copy graph outputs where this
    is needed, by the name of the copied tensor.

    A view, such as a reshaped tensor, shares the storage of the tensor that it views. A graph output that would share
    the storage of an input, a state, a constant or an earlier output is copied to a new tensor ``name@position``.
    """
    of: dict[str, str] = {}
    copies: dict[str, list[KernelCall]] = {}
    storages: dict[str, Storage] = {}
    for name, tensor in graph.tensors.items():
        if tensor.data is not None:
            of[name] = name
            storages[name] = Storage(name, tensor.size_bytes, constant=tensor.data.tobytes())
    for position, name in enumerate(graph.inputs):
        of[name] = name
        storages[name] = Storage(name, graph[name].size_bytes, input=position)
    for storage in storages_of_states(graph):
        of[storage.name] = storage.name
        storages[storage.name] = storage
    in_place = kept_in_place(graph)
    for node in graph.nodes:
        for name in node.outputs:
            of[name] = of[str(node.inputs[0])] if node.op in VIEWS else in_place.get(name, name)
            storages.setdefault(of[name], Storage(of[name], graph[name].size_bytes))
    for position, name in enumerate(graph.outputs):
        root = storages[of[name]]
        if root.is_scratch:
            storages[root.name] = Storage(root.name, root.size_bytes, output=position)
            continue
        destination = f"{name}@{position}"
        copies.setdefault(name, []).append(copied(destination, whole(graph[name]), destination))
        of[destination] = destination
        storages[destination] = Storage(destination, root.size_bytes, output=position)
    return Storages(storages, of), copies


assert rules.FAMILIES

Selection = tuple[Storages, list[KernelCall]]
"""The storages and the kernel calls of a legalized graph, in execution order. The compiler searches a schedule for
them."""


def select_node(graph: Graph, node: Node) -> list[KernelCall]:
    """Return the kernel calls of one legalized node, in order. Assert that each is valid (``KernelCall.verify``)."""
    calls = SELECT_RULES[node.op](graph, node)
    for call in calls:
        call.verify()
    return calls


def calls_of_nodes(legal: Graph, known: Mapping[str, list[KernelCall]] = MappingProxyType({})) -> Selection:
    """Return the storages of a legalized graph, and its kernel calls in execution order.

    These include calls that copy: a graph output that would share the storage of an input, a state, a constant or an
    earlier output (``share``), and at the end the new values of states (``updates``). ``known`` maps the names of
    nodes to their calls, where they are selected already. For other nodes ``select_node`` is called.
    """
    storages, copies = share(legal)
    calls: list[KernelCall] = []
    for name in (*legal.given_tensors, *(n for n, tensor in legal.tensors.items() if tensor.is_constant)):
        calls += copies.get(name, [])
    for node in legal.nodes:
        if node.op not in VIEWS:
            calls += known[node.name] if node.name in known else select_node(legal, node)
        for name in node.outputs:
            calls += copies.get(name, [])
    storages, kept = updates(legal, storages)
    return storages, [*calls, *kept]


@dataclass(frozen=True, slots=True)
class Refused:
    """A node that this compiler or another converter refuses: the name of its first output, and the reason."""

    result: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A graph for which every node has kernel calls, so that it compiles if the memory budget suffices. ``legal`` is
    the legalized graph, and ``calls`` has the kernel calls of each of its nodes, by the node's name.

    ``compile_graph`` can continue from it.
    """

    graph: Graph = field(repr=False)
    legal: Graph = field(repr=False)
    calls: Mapping[str, list[KernelCall]] = field(repr=False)


def try_compile(graph: Graph, target: Target | None = None, host_calls: bool = True) -> Refused | Trial:
    """Run the first stages of ``compile_graph``. Return a ``Trial``, or the first node that ``compile_graph`` would
    refuse for this target.

    The operator table must accept every node (``ops.reject``). ``host_calls`` is the option of this name.
    """
    for node in graph.nodes:
        reason = type_reason(graph, node, target, host_calls)
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
