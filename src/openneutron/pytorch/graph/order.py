# SPDX-License-Identifier: BSD-3-Clause
"""Orders of execution: topological order, delegate-call levels and connected components."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

from torch.fx import Node

Item = TypeVar("Item", bound=Hashable)


def in_order(items: Iterable[Item], sources: Callable[[Item], Iterable[Item]]) -> list[Item]:
    """Return the items sorted so that each comes after its sources; items on a cycle, and those behind it, are left out.

    Items that are ready at the same time keep the order in which their last sources come.
    """
    items = list(items)
    sorter: TopologicalSorter[Item] = TopologicalSorter()
    for item in items:
        sorter.add(item)
    for item in items:
        sorter.add(item, *(source for source in sources(item) if source is not item))
    with suppress(CycleError):  # what does not depend on the cycle is handed out all the same
        sorter.prepare()
    order: list[Item] = []
    while ready := sorter.get_ready():
        order += ready
        sorter.done(*ready)
    return order


def components(items: Iterable[Item], neighbors: Callable[[Item], Iterable[Item]]) -> list[list[Item]]:
    """Return the connected components, each from its first item on in breadth-first order."""
    seen: set[Item] = set()
    found = []
    for first in items:
        if first in seen:
            continue
        seen.add(first)
        component = [first]
        for item in component:
            new = [near for near in dict.fromkeys(neighbors(item)) if near not in seen]
            seen.update(new)
            component += new
        found.append(component)
    return found


class Groups:
    """The nodes of a graph in groups that run as one, in an order in which they can run."""

    def __init__(self, nodes: Iterable[Node], key_of: Callable[[Node], Hashable]) -> None:
        together: dict[Hashable, list[Node]] = defaultdict(list)
        for node in nodes:
            together[key_of(node)].append(node)
        group_of = {node: key for key, members in together.items() for node in members}
        reads = {
            key: [
                source
                for source in dict.fromkeys(s for node in members for s in node.all_input_nodes)
                if group_of[source] != key
            ]
            for key, members in together.items()
        }
        order = in_order(together, lambda key: dict.fromkeys(group_of[source] for source in reads[key]))
        assert len(order) == len(together), "groups on a cycle"
        self.groups: Sequence[tuple[Sequence[Node], Sequence[Node]]] = [(together[key], reads[key]) for key in order]
        """The nodes of each group, and what they read from outside of it."""

    def levels(self, on_npu: Callable[[Node], bool]) -> Mapping[Node, int]:
        """Return for each node how often execution must have changed from NPU to CPU and back before it can run.

        NPU nodes of one level can run together: a way from one of them to another over the CPU would have raised the level.
        The number of levels with NPU nodes is the least number of delegate calls there can be.
        """
        level: dict[Node, int] = {}
        for nodes, reads in self.groups:
            npu = on_npu(nodes[0])
            # From the NPU to the CPU one level ends; what then comes to the NPU belongs to the next.
            here = max((level[source] + (on_npu(source) and not npu) for source in reads), default=0)
            level |= dict.fromkeys(nodes, here)
        return level
