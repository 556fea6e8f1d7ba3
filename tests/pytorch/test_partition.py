# SPDX-License-Identifier: BSD-3-Clause
"""Partitions of random graphs: they can run one after the other, and there are as few as can be."""

from __future__ import annotations

import operator
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st
from torch.fx import Graph, Node

from openneutron.pytorch.lower.units import Unit
from openneutron.pytorch.partition.gather import gather, levels

Drawn = tuple[Graph, list[Unit]]


@st.composite
def graphs(draw: st.DrawFn) -> Drawn:
    """A graph of up to 14 calls, some of which are units of one node."""
    graph = Graph()
    nodes: list[Node] = [graph.placeholder("x")]
    units = []
    for _ in range(draw(st.integers(1, 14))):
        sources = draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=3))
        nodes.append(graph.call_function(operator.add, tuple(sources)))
        if draw(st.booleans()):
            units.append(Unit((nodes[-1],)))
    graph.output(nodes[-1])
    return graph, units


@given(graphs())
def test_partitions_do_not_wait_for_each_other(drawn: Drawn) -> None:
    graph, units = drawn
    part_of = {node: index for index, part in enumerate(gather(graph, units)) for node in part.nodes}
    reads = defaultdict(set)
    for node in graph.nodes:
        here = part_of.get(node, node)
        reads[here] |= {part_of.get(source, source) for source in node.all_input_nodes} - {here}
    done: set[object] = set()
    while len(done) < len(reads):
        ready = {step for step, sources in reads.items() if step not in done and sources <= done}
        assert ready, "partitions in a circle"
        done |= ready


@given(graphs())
def test_there_are_as_few_partitions_as_changes_between_npu_and_cpu(drawn: Drawn) -> None:
    graph, units = drawn
    delegated = {node for unit in units for node in unit.nodes}
    # The most often that one way through the graph goes from the CPU, or its beginning, to the NPU.
    entries: dict[Node, int] = {}
    for node in graph.nodes:
        entries[node] = max(
            (entries[source] + (node in delegated and source not in delegated) for source in node.all_input_nodes),
            default=0,
        )
    assert len(gather(graph, units)) == max((entries[node] for node in delegated), default=0)
    assert set(levels(graph, units)) == set(units)
