# SPDX-License-Identifier: BSD-3-Clause
"""The work that searches in tiles share, their ends before they begin, and the least budgets."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from openneutron import targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.driver import prepared
from openneutron.compiler.schedule.schedule import Schedule
from openneutron.compiler.search.fit import within_budget
from openneutron.compiler.search.fitted import Fitted
from openneutron.compiler.search.tiles import fit
from openneutron.compiler.search.tiles import search as tiles
from openneutron.compiler.search.tiles.fit import TiledTask
from openneutron.compiler.search.tiles.search import Segments, Structure, TileSearch
from openneutron.compiler.search.tiles.streams import Streams
from openneutron.compiler.search.tuning import TUNING
from openneutron.compiler.select.calls import Storages
from openneutron.errors import BudgetError
from openneutron.ir import Graph, Node, constant
from openneutron.targets import Target
from scripts.published_networks import Chain, mobilenet_v1
from tests.support.oracle import activation, graph_of
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


@pytest.mark.parametrize(("op", "least"), [("resize_bilinear", 2192), ("max_pool_2d", 1568)])
def test_a_schedule_below_half_of_the_budget_counts(op: str, least: int) -> None:
    # Rows and columns are exchanged for a small memory alone. Otherwise the whole input is copied.
    given = activation("x", (1, 40, 36, 16) if op == "resize_bilinear" else (1, 64, 64, 8))
    if op == "resize_bilinear":
        attrs = {"align_corners": False, "half_pixel_centers": False}
        others = [activation("y", (1, 1, 18, 16)), constant("size", np.array([1, 18], np.int32))]
        node = Node(op, ("x", "size"), ("y",), attrs)
    else:
        attrs = {"padding": "SAME", "stride_h": 32, "stride_w": 1, "kernel_h": 2, "kernel_w": 2, "activation": "NONE"}
        others, node = [activation("y", (1, 2, 64, 8))], Node(op, ("x",), ("y",), attrs)
    made, target = prepared(graph_of([given], [node], others), kept=True), targets.get("imx95")
    found = []
    for budget in (least, 3072, 8192, 12288, 16384, 24576, 1 << 20):
        fitted = within_budget(made.graph, made.tasks, target, dataclasses.replace(OPTIONS, sram_budget=budget))
        assert fitted.sram_bytes <= budget
        found.append(fitted.cycles(target))
    assert found == sorted(found, reverse=True)
    with pytest.raises(BudgetError) as caught:
        within_budget(made.graph, made.tasks, target, dataclasses.replace(OPTIONS, sram_budget=least - 16))
    assert caught.value.least_bytes == least


def test_a_call_that_no_memory_holds_ends_a_search_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    # The weights of 200 inputs and 8 outputs, the fewest of a group, with their requantization, and a row of the input.
    storages, calls = prepared(Chain("deep", (1, 8, 8, 200)).conv(512, 1).graph()).tasks.selected[0]
    search = TileSearch(Streams(calls, storages, targets.get("imx95")))
    assert search.floor_bytes == 8 * 200 + 8 * 12 + 8 * 200
    monkeypatch.setattr(TileSearch, "_shortest", lambda search, budget, _: budget)
    monkeypatch.setattr(TileSearch, "_made", lambda search, path: path)
    assert [search.plan(search.floor_bytes - less) for less in (0, 16)] == [search.floor_bytes, None]


def test_orders_share_the_segments_that_they_have_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    # The second order exchanges two branches of three layers, all different. Cascades inside a branch are those of the first order.
    chain = Chain("branches", (1, 32, 32, 8))
    start, ends = chain.last, []
    for first, second, third in ((8, 16, 24), (32, 40, 48)):
        chain.last = start
        ends.append(chain.conv(first, 3).conv(second, 3).conv(third, 3).last)
    graph = Graph("branches", chain.tensors, tuple(chain.nodes), ("input",), tuple(end.name for end in ends))
    storages, calls = prepared(graph).tasks.selected[0]
    made: list[Structure] = []
    monkeypatch.setattr(f"{Structure.__module__}.Structure", lambda forms: made.append(Structure(forms)) or made[-1])
    plans, counts, shared = [], [], Segments()
    for order in (calls, [*calls[3:], *calls[:3]]):
        before = len(made)
        for segments in (Segments(), shared):
            plans.append(TileSearch(Streams(order, storages, targets.get("imx95")), segments=segments).plan(64 << 10))
            counts.append(len(made) - before)
            before = len(made)
    assert counts[0] == counts[1] and 0 < counts[3] < counts[2]
    assert [plan is not None and plan.cycles for plan in plans[::2]] == [plan and plan.cycles for plan in plans[1::2]]


def test_segments_of_one_structure_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers that differ in names, weights and scales, and layers that differ in their channels too."""
    made: list[Structure] = []
    monkeypatch.setattr(f"{Structure.__module__}.Structure", lambda forms: made.append(Structure(forms)) or made[-1])
    counts = []
    for channels in ((8,) * 8, (8, 16, 24, 32, 40, 48, 56, 64)):
        chain = Chain("layers", (1, 32, 32, 8))
        for count in channels:
            chain.conv(count, 3)
        storages, calls = prepared(chain.graph()).tasks.selected[0]
        streams = Streams(calls, storages, targets.get("imx95"))
        search, before = TileSearch(streams), len(made)
        plan = search.plan(64 << 10)
        counts.append(len(made) - before)
        assert plan is not None
        for *_, chosen in plan.parts:
            own = chosen.tiled()
            found = chosen.cycles, chosen.moving_cycles, chosen.peak_bytes
            assert found == (*own.cycles(), own.peak_bytes)
            # The first iteration computes the halos, so that no iterations come in front of the stripes.
            streamed, height = own.streamed, chosen.height
            stripes = -(-streamed.calls[streamed.pace].rows // height)
            transfers = (streamed.loads > 0) + (streamed.stores > 0)
            assert len(own.done[streamed.pace]) == stripes + transfers
    alike, different = counts
    assert 2 * alike < different


@pytest.mark.parametrize("seed", range(6))
def test_no_plan_takes_less_than_the_floor_of_its_search(seed: int) -> None:
    storages, calls = prepared(several(seed)).tasks.selected[0]
    search = TileSearch(Streams(calls, storages, targets.get("imx95")))
    sizes = [size for size in range(512, 1 << 16, 512) if search._shortest(size, True) is not None]
    assert search.floor_bytes <= min(sizes, default=1 << 16)


def test_the_exact_search_for_addresses_is_for_the_fastest_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    works: list[float] = []
    placing = tiles._with_constants

    def spied(schedule: Schedule, made: Storages, target: Target, *limits: int) -> tiles.TiledSchedule | None:
        works.append(limits[-1])
        return None if works[0] < 0 == limits[-1] else placing(schedule, made, target, *limits)

    monkeypatch.setattr(tiles, "_with_constants", spied)
    graph = mobilenet_v1(0.25, 128)
    first = compile_graph(graph, targets.get("imx95").with_sram(48), OPTIONS).report
    exact = sum(work > 0 for work in works)
    assert 0 < exact <= TUNING.refined < len(works) - exact
    # Where first fit places no schedule, the exact search places all of them.
    works[:] = [-1]
    again = compile_graph(graph, targets.get("imx95").with_sram(48), OPTIONS).report
    assert sum(work > 0 for work in works) == sum(work == 0 for work in works)
    assert first.cycles <= again.cycles


def test_a_search_of_calls_divided_again_ends_with_a_plan_that_is_slower_than_a_known_schedule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storages, calls = prepared(mobilenet_v1(0.25, 128)).tasks.selected[0]
    search = TileSearch(Streams(calls, storages, targets.get("imx95")))
    plans = []
    plan = TileSearch.plan
    monkeypatch.setattr(TileSearch, "plan", lambda search, budget: plans.append(plan(search, budget)) or plans[-1])
    best, estimate = tiles.fastest_plan(search, targets.get("imx95"), 48 << 10, 1 << 40, True)
    assert best is not None and len(plans) > 1
    count, limit = len(plans), int(estimate * TUNING.hidden_constants_ratio)
    assert tiles.fastest_plan(search, targets.get("imx95"), 48 << 10, limit, True, is_again=True) == (None, estimate)
    assert len(plans) == count + 1
    tiles.fastest_plan(search, targets.get("imx95"), 48 << 10, limit, True)
    assert len(plans) == 2 * count + 1


def test_searches_of_earlier_budgets_are_forgotten_where_they_have_many_segments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Structure] = []
    monkeypatch.setattr(f"{Structure.__module__}.Structure", lambda forms: made.append(Structure(forms)) or made[-1])
    counts = []
    for most in (TUNING.kept_segments, 0):
        monkeypatch.setattr(fit, "TUNING", dataclasses.replace(TUNING, kept_segments=most))
        task = TiledTask.of(prepared(mobilenet_v1(0.25, 128)).tasks.selected, targets.get("imx95"))
        for _ in range(2):
            before = len(made)
            assert isinstance(task.within(48 << 10), Fitted)
            counts.append(len(made) - before)
    first, again, forgotten, anew = counts
    assert again == 0 < first == forgotten == anew
