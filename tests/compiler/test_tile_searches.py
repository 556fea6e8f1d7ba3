# SPDX-License-Identifier: BSD-3-Clause
"""The work that searches in tiles share, their ends before they begin, and the least budgets."""

from __future__ import annotations

import dataclasses

import pytest

from openneutron import targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.driver import prepared
from openneutron.compiler.search.tiles.search import TileSearch
from openneutron.compiler.search.tiles.segments import Choices, Segments
from openneutron.compiler.search.tiles.streams import Streams
from openneutron.errors import BudgetError
from openneutron.ir import Graph
from scripts.published_networks import Chain
from tests.support.random_graphs import several

OPTIONS = CompileOptions(target="imx95")


@pytest.mark.parametrize("channels", [24, 100])
def test_the_least_budget_is_exact_to_sixteen_bytes(channels: int) -> None:
    # One graph has few calls, the other one more than 16.
    chain = Chain("wide", (1, 4, 4, channels))
    for _ in range(2 if channels == 100 else 17):
        chain.conv(channels, 1)
    graph, named = chain.graph(), []
    for budget in (512, 0):
        with pytest.raises(BudgetError) as caught:
            compile_graph(
                graph, targets.get("imx95"), dataclasses.replace(OPTIONS, sram_budget=budget or named[0] - 16)
            )
        named.append(caught.value.least_bytes)
    assert named[0] == named[1]
    made = compile_graph(graph, targets.get("imx95"), dataclasses.replace(OPTIONS, sram_budget=named[0]))
    assert made.report.sram_bytes <= named[0]


def test_a_call_that_no_memory_holds_ends_a_search_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    # The weights of 200 inputs and 8 outputs, the fewest of a group, with their requantization, and a row of the input.
    storages, calls = prepared(Chain("deep", (1, 8, 8, 200)).conv(512, 1).graph()).tasks.selected[0]
    search = TileSearch(Streams(calls, storages, targets.get("imx95")))
    assert search.floor_bytes == 8 * 200 + 8 * 12 + 8 * 200
    monkeypatch.setattr(TileSearch, "_shortest", lambda search, budget, _: budget)
    monkeypatch.setattr(TileSearch, "_made", lambda search, path: path)
    assert [search.plan(search.floor_bytes - less) for less in (0, 16)] == [search.floor_bytes, None]


def test_orders_share_the_segments_that_they_have_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    # The second order exchanges two branches of three layers. Cascades inside a branch are those of the first order.
    chain = Chain("branches", (1, 32, 32, 8))
    start, ends = chain.last, []
    for _ in range(2):
        chain.last = start
        ends.append(chain.conv(8, 3).conv(8, 3).conv(8, 3).last)
    graph = Graph("branches", chain.tensors, tuple(chain.nodes), ("input",), tuple(end.name for end in ends))
    storages, calls = prepared(graph).tasks.selected[0]
    made: list[Choices] = []
    of = Choices.of
    monkeypatch.setattr(Choices, "of", lambda *given: made.append(of(*given)) or made[-1])
    plans, counts, shared = [], [], Segments()
    for order in (calls, [*calls[3:], *calls[:3]]):
        before = len(made)
        for segments in (Segments(), shared):
            plans.append(TileSearch(Streams(order, storages, targets.get("imx95")), segments=segments).plan(12 << 10))
            counts.append(len(made) - before)
            before = len(made)
    assert counts[0] == counts[1] and 0 < counts[3] < counts[2]
    assert [plan is not None and plan.cycles for plan in plans[::2]] == [plan and plan.cycles for plan in plans[1::2]]


@pytest.mark.parametrize("seed", range(6))
def test_no_plan_takes_less_than_the_floor_of_its_search(seed: int) -> None:
    storages, calls = prepared(several(seed)).tasks.selected[0]
    search = TileSearch(Streams(calls, storages, targets.get("imx95")))
    sizes = [size for size in range(512, 1 << 16, 512) if search._shortest(size, True) is not None]
    assert search.floor_bytes <= min(sizes, default=1 << 16)
