# SPDX-License-Identifier: BSD-3-Clause
"""The search against all plans there are on small networks, and its least memory against what is proved of it on all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from bench.lower_bound import bounds, memory_bounds
from openneutron.compiler import CompileOptions
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.rewrite.passes import select_calls
from openneutron.compiler.search.cascade.network import Network, network, segment
from openneutron.compiler.search.cascade.search import PlanSearch
from openneutron.compiler.search.cascade.stripes import Paced, Pacing, cycles_of, evaluate, rounds
from openneutron.compiler.search.tuning import DEFAULT
from openneutron.compiler.select.needs import in_place
from scripts.published_networks import cifarnet
from tests.support import oracle
from tests.support.oracle import least_budget
from tests.support.random_images import image_graph

SMALL = (0, 12, 15, 18, 20, 21, 22, 24, 26, 31, 32, 33, 34, 35, 38, 39, 40, 41, 42, 43, 44, 46, 47, 48, 50, 51)
"""Seeds of networks of at most 8 calls, of which all plans are gone through."""

Point = tuple[int, int]
"""Bytes and cycles."""


def network_of(seed: int) -> Network:
    storages, calls = select_calls(legalize(image_graph(seed)))
    return network(calls, in_place(storages, calls), oracle.TARGET, False)


def front(points: set[Point]) -> list[Point]:
    kept: list[Point] = []
    for point in sorted(points):
        if not kept or point[1] < kept[-1][1]:
            kept.append(point)
    return kept


def runs(made: Network, first: int, end: int) -> Iterator[Point]:
    """All that a run of these calls can come to: each call at the pace, all heights, even or not."""
    run = segment(made, first, end)
    for position in range(first, end) if run is not None else ():
        rows = made.calls[position].rows
        whole_only = end - first == 1 and not made.calls[first].by_rows
        for height, even in product((rows,) if whole_only else range(1, rows + 1), (False, True)):
            part = evaluate(run, position, height, even)
            yield part.peak_bytes, part.cycles


def all_plans(made: Network) -> list[Point]:
    """Return the lower bound of the arena for schedules by rows."""
    fronts = [[(0, 0)]]
    for end in range(1, len(made.calls) + 1):
        points = {
            (max(before, there), cycles + spent)
            for first in range(end)
            for (before, cycles), (there, spent) in product(fronts[first], front(set(runs(made, first, end))))
        }
        fronts.append(front(points))
    return fronts[-1]


@pytest.mark.parametrize("seed", SMALL)
def test_a_longer_segment_goes_on_with_the_progress_of_a_shorter_one(seed: int) -> None:
    made = network_of(seed)
    kept: dict[tuple[int, Pacing], Paced] = {}
    for end in range(1, len(made.calls) + 1):
        for first in reversed(range(end)):
            run = segment(made, first, end)
            for each in product(range(first, end), (1, 2, 3, 5), (False, True)) if run is not None else ():
                pacing = Pacing(*each)
                paced = kept.setdefault((end, pacing), Paced.of(run, pacing))
                alone = rounds(run, *pacing)
                assert [*alone[first]][-len(paced.reaching(run)[first]) :] == paced.done[first]
                assert paced.cycles[first] == cycles_of(run, alone)


@pytest.mark.parametrize("seed", SMALL)
def test_the_search_has_the_best_of_all_plans_where_a_network_is_small(seed: int) -> None:
    """To the byte and to the cycle."""
    made = network_of(seed)
    best = all_plans(made)
    search = PlanSearch(made, effort=replace(DEFAULT, patches=()))
    assert search.least().peak_bytes == best[0][0]
    for size, cycles in best:
        plan = search.plan(size)
        assert plan is not None and plan.cycles <= cycles
    assert search.plan(best[0][0] - 1) is None
    found = bounds(made)
    assert found.is_exact and found.any_plan <= found.by_rows == best[0][0]


@pytest.mark.without_tiles("the bound is one of kernels that access SRAM, inputs and outputs included")
@pytest.mark.parametrize("seed", range(12))
def test_no_budget_is_below_its_bound(seed: int) -> None:
    graph = image_graph(seed)
    for io in ("arena", "caller"):
        found = memory_bounds(graph, oracle.TARGET, CompileOptions(io_place=io))
        assert found.any_plan <= found.by_rows
        assert found.any_plan <= least_budget(graph, io=io)


def test_the_bound_by_rows_is_below_every_plan_by_rows_where_not_all_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.lower_bound.EXHAUSTIVE", -1)
    for seed in range(15):
        made = network_of(seed)
        found = bounds(made)
        assert not found.is_exact
        assert (
            found.any_plan <= found.by_rows <= PlanSearch(made, effort=replace(DEFAULT, patches=())).least().peak_bytes
        )


@pytest.mark.without_tiles("the bound is one of kernels that access SRAM, inputs and outputs included")
def test_a_published_network_takes_what_is_proved() -> None:
    found = memory_bounds(cifarnet(), oracle.TARGET)
    assert found.is_exact and found.by_rows == 8704
    assert found.any_plan <= least_budget(cifarnet()) <= found.by_rows
