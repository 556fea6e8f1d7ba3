# SPDX-License-Identifier: BSD-3-Clause
"""What operators on the CPU cost: delegate calls they part, and bytes that go to and fro because of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch.fx import Graph, Node

from openneutron.diagnostics import Fallback
from openneutron.pytorch.graph.order import Groups, components


def fallbacks(graph: Graph, partitions: Sequence[Iterable[Node]]) -> dict[Node, Fallback]:
    """For each call on the CPU what it costs together with those it exchanges values with on the CPU."""
    part_of = {node: number for number, nodes in enumerate(partitions) for node in nodes}
    on_cpu = [node for node in graph.nodes if node.op == "call_function" and node not in part_of]
    if not on_cpu or not part_of:
        return {}

    def beside(node: Node) -> list[Node]:
        near = (*node.all_input_nodes, *node.users)
        return [other for other in near if other.op == "call_function" and other not in part_of]

    groups = Groups(graph.nodes, lambda node: part_of.get(node, node))
    found: dict[Node, Fallback] = {}
    for island in components(on_cpu, beside):
        on_npu = {*part_of, *island}
        level = groups.levels(on_npu.__contains__)
        without = len({level[node] for node in on_npu})
        cost = Fallback(len(partitions), without, _bytes(island, part_of))
        found |= dict.fromkeys(island, cost)
    return found


def _bytes(island: Sequence[Node], part_of: Mapping[Node, int]) -> int:
    come = {source for node in island for source in node.all_input_nodes if source in part_of}
    go = [node for node in island if any(user in part_of for user in node.users)]
    return sum(_size(node) for node in (*come, *go))


def _size(node: Node) -> int:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or any(not isinstance(extent, int) for extent in value.shape):
        return 0
    return value.numel() * value.element_size()
