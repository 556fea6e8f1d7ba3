# SPDX-License-Identifier: BSD-3-Clause
"""A slice of ``tests.fuzz.all``; ``make soak`` runs a long one."""

from __future__ import annotations

import pytest

from tests.fuzz import all as everywhere
from tests.support import random_graphs
from tests.support.random_recurrent import WITHOUT_REFERENCE


@pytest.mark.parametrize("first", [0, 24])
def test_random_graphs_on_every_class_of_target(first: int) -> None:
    made = {seed: everywhere.check(seed) for seed in range(first, first + 24)}
    assert sum(programs for programs, _ in made.values()) > 24
    assert not any(faults for _, faults in made.values())


def test_rows_that_see_padding_alone_read_nothing() -> None:
    common = tuple(op for op in everywhere.FREQUENT if op not in WITHOUT_REFERENCE)
    graph = random_graphs.several(200_329, 2, 8, common)
    assert everywhere.check_graph(graph, everywhere.target_of(329), 329) == (1, 0)


def test_the_graphs_are_of_all_kinds() -> None:
    graphs = [everywhere.graph_of(seed) for seed in range(120)]
    operators = {node.op for graph in graphs for node in graph.nodes}
    assert operators >= set(everywhere.FREQUENT)
    assert any(graph.states for graph in graphs)
    assert {everywhere.target_of(seed).moves_tiles for seed in range(6)} == {False, True}
