# SPDX-License-Identifier: BSD-3-Clause
"""The units of delegation: nodes that are on the NPU together or not at all, because float values join them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from torch.fx import Graph, Node

from openneutron.pytorch.graph.order import in_order
from openneutron.pytorch.graph.program import Constants, is_compute, is_dequantize, is_exact, is_quantize
from openneutron.pytorch.lower.functions import functions_of


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """A cluster dequantize, operators, quantize. ``nodes`` are in execution order, quantize and dequantize included."""

    nodes: tuple[Node, ...]

    @property
    def compute(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if is_compute(node))

    def __str__(self) -> str:
        return " ".join(node.name for node in self.nodes)


def find_units(graph: Graph, constants: Constants) -> tuple[list[Unit], list[Unit]]:
    """Return all units of a graph: first those that can run one after the other, in such an order, then those on a
    cycle. A unit on a cycle reads values that depend on its own results.

    Quantize nodes of the model's inputs and dequantize nodes of its outputs belong to none.
    """
    owner: dict[Node, Node] = {}

    def root(node: Node) -> Node:
        while owner[node] is not node:
            owner[node] = owner[owner[node]]
            node = owner[node]
        return node

    functions = functions_of(graph.nodes, constants).values()
    inside = {node for function in functions for node in function.nodes}
    calls = [node for node in graph.nodes if node.op == "call_function"]
    for node in calls:
        owner[node] = node
        for source in node.all_input_nodes:
            if source.op != "call_function" or (is_exact(source) and not {source, node} <= inside):
                continue  # integers and truth values may come from anywhere
            if not is_quantize(source) or _is_constant(source, constants):
                owner[root(source)] = root(node)
    members: dict[Node, list[Node]] = defaultdict(list)
    for node in calls:
        members[root(node)].append(node)
    units = [Unit(tuple(nodes)) for nodes in members.values() if _matters(nodes)]
    unit_of = {node: unit for unit in units for node in unit.nodes}

    def sources(unit: Unit) -> Iterable[Unit]:
        read = (unit_of.get(source) for node in unit.nodes for source in node.all_input_nodes)
        return dict.fromkeys(other for other in read if other is not None)

    order = in_order(units, sources)
    return order, [unit for unit in units if unit not in order]


def _is_constant(node: Node, constants: Constants) -> bool:
    return all(source in constants for source in node.all_input_nodes)


def _matters(nodes: list[Node]) -> bool:
    return any(is_compute(node) for node in nodes) or (
        any(is_quantize(node) for node in nodes) and any(is_dequantize(node) for node in nodes)
    )
