# SPDX-License-Identifier: BSD-3-Clause
"""The search for the nodes of a graph that a converter refuses. Each call of a converter may take minutes, so that the
search asks as rarely as it can: the converter's own words first, then bisection."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from openneutron.compiler.legalize.partition import extract, operator_title
from openneutron.compiler.select.select import Refused
from openneutron.errors import Failure
from openneutron.ir import Graph, Node

Converts = Callable[[Graph], Failure | None]
"""A function that converts a graph, and returns None, or the failure."""

SAMPLES = 4
"""The most operators that are tried alone where no part of a graph could be converted. The number is our own choice."""


def refusals(graph: Graph, converts: Converts, converter: str) -> tuple[Refused, ...]:
    """Return nodes that must leave the graph before the converter can convert the rest of it; empty where it converts
    the graph.

    The nodes are those that the converter left outside of the NeutronGraph, or the one that its output names and that it
    refuses alone too, or else one that bisection finds. ``converter`` is its name in the reasons.

    For one refused node among n, and with the conversions of the parts that it divides the graph into, the converter is
    called at most 4 + log2(n) times.
    """
    failure = converts(graph)
    if failure is None:
        return ()
    results = {name for node in graph.nodes for name in node.outputs}
    outside = {_known(name, results) for name in failure.outside}
    left = [node for node in graph.nodes if outside & set(node.outputs)]
    if left:
        words = f"{converter} refuses it: it leaves the operator outside of the NeutronGraph"
        return tuple(Refused(node.outputs[0], words) for node in left)
    named = _named(graph, failure.output)
    if named is not None and len(graph.nodes) > 1:
        alone = converts(extract(graph, [named]))
        if alone is not None:
            return (Refused(graph.nodes[named].outputs[0], f"{converter} {alone.verdict}"),)
    place, failure = _bisected(graph, failure, converts)
    found = Refused(graph.nodes[place].outputs[0], f"{converter} {failure.verdict}")
    if place == 0 and len(graph.nodes) > 1 and not _converts_any(graph, converts):
        return tuple(Refused(node.outputs[0], f"{converter} {failure.verdict}") for node in graph.nodes)
    return (found,)


def _known(name: str, known: Collection[str]) -> str:
    """Return a known name for the name that a converter gives; an empty text if there is none. The converter may see a node as several
    operators, whose results have the names of the node's and a part of their own, such as ``y/wide``."""
    while name and name not in known:
        name = name.rpartition("/")[0]
    return name


def _named(graph: Graph, output: str) -> int | None:
    """Return the place of the only node that the last line of the output with a name of the graph names: by one of its
    results, or by LiteRT's name of an operator that no other node has. None where there is no such line, or it names
    several nodes."""
    by_name: dict[str, set[int]] = {}
    for place, node in enumerate(graph.nodes):
        for name in (*node.outputs, operator_title(node)):
            by_name.setdefault(name, set()).add(place)
    for line in reversed(output.splitlines()):
        words = {word.strip(".,:;()[]{}'\"`") for word in re.split(r"[\s'\"`,()\[\]]+", line)}
        found = [by_name[name] for name in (_known(word, by_name) for word in words) if name]
        if found:
            exact = [places for places in found if len(places) == 1]
            places = set.union(*exact) if exact else set.intersection(*found)
            return places.pop() if len(places) == 1 else None
    return None


def _bisected(graph: Graph, failure: Failure, converts: Converts) -> tuple[int, Failure]:
    """Return the place of a node, and the failure of the nodes up to it: those before it are converted, and with it they are
    not."""
    converted, failed = 0, len(graph.nodes)
    while failed - converted > 1:
        middle = (converted + failed) // 2
        found = converts(extract(graph, range(middle)))
        if found is None:
            converted = middle
        else:
            failed, failure = middle, found
    return converted, failure


def _converts_any(graph: Graph, converts: Converts) -> bool:
    """Return whether the converter takes one of a few operators after the first, alone: one of each kind, or the next
    one."""
    kinds: dict[str, int] = {}
    for place, node in enumerate(graph.nodes[1:], 1):
        kinds.setdefault(node.op, place)
    if len(kinds) > 1:
        kinds.pop(graph.nodes[0].op, None)
    return any(converts(extract(graph, [place])) is None for place in list(kinds.values())[:SAMPLES])


def owner_of(nodes: Sequence[Node], result: str, known: Collection[str] | Mapping[str, object]) -> str | None:
    """Return ``result`` if it is one of the known names, or else the first known result of the nodes that read it, or of those
    that compute it. None if there is none.

    Nodes that only convert the inputs and outputs of a partition have no node of the model.
    """
    front, seen = [result], {result}
    while front:
        for name in front:
            if name in known:
                return name
        readers = [name for node in nodes if set(front) & set(node.inputs) for name in node.outputs]
        sources = [name for node in nodes if set(front) & set(node.outputs) for name in node.inputs if name is not None]
        front = [name for name in dict.fromkeys((*readers, *sources)) if name not in seen]
        seen |= set(front)
    return None
