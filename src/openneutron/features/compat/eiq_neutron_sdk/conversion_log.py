# SPDX-License-Identifier: BSD-3-Clause
"""The converter's log, as far as ExecuTorch's NXP backend reads it (``executorch.backends.nxp.backend.neutron_map``).

The log has the operators of the file, then the kernels of the NeutronGraph, then an operator graph for each kernel. The
backend joins both lists by the names of tensors, and so gets the debug handles of each event of a profile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from openneutron.compiler.select.names import node_of
from openneutron.ir import Graph, Node
from openneutron.isa import Program, decode
from openneutron.isa.facts import facts_of
from openneutron.isa.steps import calls

GRAPH = 0
"""The number of the NeutronGraph among the subgraphs; its kernels follow it."""


def conversion_log(graph: Graph, program: Program) -> str:
    """Return the log for a file's graph and the program of all of it, which was compiled with profiling."""
    microcode = decode(program)
    computed = _computed(graph, [item.layer for item in facts_of(program)])
    events = [
        (microcode.operators[step.operator].row.name, [graph.nodes[place] for place in computed[step.operator]])
        for step in calls(microcode)
    ]
    lines = ["Graphs:", *_nodes(enumerate(graph.nodes)), "= Optimize Graph =", "= Extract Graphs ="]
    lines.append(f'NeutronGraph "subgraph_{GRAPH:03}":')
    for number, (kernel, nodes) in enumerate(events, GRAPH + 1):
        lines += [f'  NeutronOperator "subgraph_{number:03}":', "    Operators:"]
        lines += [f"      {node.op.upper()}" for node in nodes]
        lines += ["    Kernels:", f"      {kernel}"]
    lines += ["=", "Generate code for NeutronGraph", "Graphs:"]
    for number, (_, nodes) in enumerate(events, GRAPH + 1):
        lines += [f"Name: subgraph_{number:03}", *_tensors(_read(nodes), _written(nodes)), "  Tensors:"]
        lines += _nodes(enumerate(nodes))
    lines += [f"Name: subgraph_{GRAPH:03}", *_tensors(graph.inputs, graph.outputs), "  Tensors:"]
    lines.append(f'Statistics for NeutronGraph "subgraph_{GRAPH:03}":')
    return "\n".join(lines) + "\n"


def _computed(graph: Graph, layers: Sequence[str]) -> list[list[int]]:
    """Return the places of the graph's nodes that each operator of a program computes.

    A node without an operator of its own is fused: it counts for the operators of its reader, else for those of its source.
    """
    named = {node.name.rsplit(";", 1)[-1]: place for place, node in enumerate(graph.nodes)}
    found = [named.get(node_of(layer, named)) for layer in layers]
    own = {place for place in found if place is not None}
    makers = {result: place for place, node in enumerate(graph.nodes) for result in node.outputs}
    readers = {operand: place for place, node in enumerate(graph.nodes) for operand in node.inputs if operand}

    def stands_for(place: int, onwards: bool, seen: frozenset[int] = frozenset()) -> int | None:
        if place in own or place in seen:
            return place if place in own else None
        node = graph.nodes[place]
        table: Mapping[str, int] = readers if onwards else makers
        near = (table[name] for name in (node.outputs if onwards else node.inputs) if name and name in table)
        results = (stands_for(other, onwards, seen | {place}) for other in near)
        return next((result for result in results if result is not None), None)

    together: dict[int, list[int]] = {place: [] for place in own}
    for place in range(len(graph.nodes)):
        here = stands_for(place, onwards=True)
        here = stands_for(place, onwards=False) if here is None else here
        if here is not None:
            together[here].append(place)
    return [[] if place is None else together[place] for place in found]


def _nodes(nodes: Iterable[tuple[int, Node]]) -> Iterator[str]:
    for place, node in nodes:
        yield f"  Type: {node.op.upper()}"
        yield from _tensors([name for name in node.inputs if name], node.outputs)
        yield f"    Location: {place}"


def _tensors(inputs: Sequence[str], outputs: Sequence[str]) -> Iterator[str]:
    for title, names in (("Inputs", inputs), ("Outputs", outputs)):
        yield f"    {title}:"
        yield from (f"      [{index}]: {'_'.join(name.split())}" for index, name in enumerate(names))


def _read(nodes: Sequence[Node]) -> list[str]:
    made = {result for node in nodes for result in node.outputs}
    return list(dict.fromkeys(name for node in nodes for name in node.inputs if name and name not in made))


def _written(nodes: Sequence[Node]) -> list[str]:
    read = {name for node in nodes for name in node.inputs}
    return [result for node in nodes for result in node.outputs if result not in read]
