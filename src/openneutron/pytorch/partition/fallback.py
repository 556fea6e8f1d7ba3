# SPDX-License-Identifier: BSD-3-Clause
"""What operators on the CPU cost: delegate calls they part, and bytes that go to and fro because of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch.fx import Graph, Node

from openneutron.diagnostics import Fallback


def fallbacks(graph: Graph, partitions: Sequence[Iterable[Node]]) -> dict[Node, Fallback]:
    """For each call on the CPU what it costs together with those it exchanges values with on the CPU."""
    part_of = {node: number for number, nodes in enumerate(partitions) for node in nodes}
    islands = _islands(graph, part_of)
    if not islands or not part_of:
        return {}
    order = _in_order(graph, part_of)
    found: dict[Node, Fallback] = {}
    for island in islands:
        without = _calls(order, set(part_of) | set(island))
        cost = Fallback(len(partitions), without, _bytes(island, part_of))
        found |= dict.fromkeys(island, cost)
    return found


def _islands(graph: Graph, part_of: Mapping[Node, int]) -> list[list[Node]]:
    """The calls on the CPU, those together that lie side by side."""
    seen: set[Node] = set()
    found = []
    for first in graph.nodes:
        if first.op != "call_function" or first in part_of or first in seen:
            continue
        seen.add(first)
        island = [first]
        for node in island:
            for near in (*node.all_input_nodes, *node.users):
                if near.op == "call_function" and near not in part_of and near not in seen:
                    seen.add(near)
                    island.append(near)
        found.append(island)
    return found


def _in_order(graph: Graph, part_of: Mapping[Node, int]) -> list[tuple[list[Node], list[Node]]]:
    """The nodes in an order in which they can run, each partition's together, with what they read from outside."""
    together: dict[object, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        together[part_of.get(node, node)].append(node)
    group_of = {node: key for key, nodes in together.items() for node in nodes}
    reads = {key: list(dict.fromkeys(s for n in nodes for s in n.all_input_nodes)) for key, nodes in together.items()}
    waiting = {key: {group_of[s] for s in sources} - {key} for key, sources in reads.items()}
    readers: dict[object, list[object]] = defaultdict(list)
    for key, sources in waiting.items():
        for source in sources:
            readers[source].append(key)
    ready = [key for key, sources in waiting.items() if not sources]
    for key in ready:
        for reader in readers[key]:
            waiting[reader].discard(key)
            if not waiting[reader]:
                ready.append(reader)
    inside = {key: set(nodes) for key, nodes in together.items()}
    return [(together[key], [s for s in reads[key] if s not in inside[key]]) for key in ready]


def _calls(order: Sequence[tuple[list[Node], list[Node]]], on_npu: set[Node]) -> int:
    """How many delegate calls there are if these nodes are on the NPU: as ``partition.levels`` counts them."""
    level: dict[Node, int] = {}
    used = set()
    for nodes, reads in order:
        npu = nodes[0] in on_npu
        here = max((level[source] + (source in on_npu and not npu) for source in reads), default=0)
        level |= dict.fromkeys(nodes, here)
        if npu:
            used.add(here)
    return len(used)


def _bytes(island: Sequence[Node], part_of: Mapping[Node, int]) -> int:
    come = {source for node in island for source in node.all_input_nodes if source in part_of}
    go = [node for node in island if any(user in part_of for user in node.users)]
    return sum(_size(node) for node in (*come, *go))


def _size(node: Node) -> int:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or any(not isinstance(extent, int) for extent in value.shape):
        return 0
    return value.numel() * value.element_size()
