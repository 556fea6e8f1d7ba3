# SPDX-License-Identifier: BSD-3-Clause
"""Patches of an image computed from its planes: the calls, the memory and the bytes."""

from __future__ import annotations

import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.rewrite.call_list import CallList, edited
from openneutron.compiler.rewrite.passes import select_calls
from openneutron.compiler.rewrite.shapes import MOST_COLUMNS, patches_of_planes
from openneutron.ir import Graph
from openneutron.isa import aligned
from tests.support import oracle
from tests.support.attention_graphs import patches


def further_calls(graph: Graph) -> int:
    """Return how many calls more there are than of the graph as it is."""
    storages, calls = select_calls(legalize(graph))
    made = edited(CallList(tuple(calls), storages), patches_of_planes)
    return 0 if made is None else len(made.calls) - len(calls)


@pytest.mark.without_tiles("planes are a list of the search for cascades, which tiles do not use")
@pytest.mark.parametrize(("planes", "rows", "cols", "side"), [(3, 4, 4, 8), (2, 3, 5, 8), (4, 6, 2, 12)])
def test_the_least_budget_is_the_image_and_one_row_of_patches(planes: int, rows: int, cols: int, side: int) -> None:
    graph = patches(1, planes, rows, cols, side, 2, 4)
    assert further_calls(graph) == cols - 2
    image = planes * rows * cols * side * side
    least = oracle.least_budget(graph)
    assert image <= least <= aligned(image) + aligned(cols * 8)
    oracle.assert_bit_exact(graph, (0, 1), CompileOptions(sram_budget=least))
    assert len(compile_graph(graph, oracle.TARGET).report.operators) < cols + 6


def test_convolutions_that_stay_as_they_are() -> None:
    assert further_calls(patches(1, 3, 2, MOST_COLUMNS + 1, 4, 1, 8)) == 0
    assert further_calls(patches(1, 3, 4, 4, 8, 1, 8, stride=4)) == 0  # windows overlap
    assert further_calls(patches(1, 3, 4, 4, 8, 1, 8, stride=9)) == 0  # and leave columns out
