# SPDX-License-Identifier: BSD-3-Clause
"""Memory against time: each point can be had, and none is worse than a smaller one."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from openneutron import targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.driver import prepared
from openneutron.compiler.search.fit import within_budget
from openneutron.compiler.search.pareto import Point, one_after_the_other, pareto
from openneutron.errors import BudgetError
from scripts.published_networks import Chain
from tests.support import oracle
from tests.support.random_images import image_graph


@pytest.mark.parametrize("fetch", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_each_point_can_be_had(seed: int, fetch: bool) -> None:
    graph = image_graph(seed)
    options = CompileOptions(io_place=("arena", "caller")[seed % 2], prefetch_constants=fetch)
    points = pareto(graph, oracle.TARGET, options)
    for smaller, larger in pairwise(points):
        assert smaller.sram_bytes < larger.sram_bytes
        assert smaller.cycles > larger.cycles
    for point in points:
        report = compile_graph(graph, oracle.TARGET, dataclasses.replace(options, sram_budget=point.sram_bytes)).report
        assert report.sram_bytes <= point.sram_bytes
        assert report.overlapped_cycles <= point.cycles
    assert points[-1].cycles == compile_graph(graph, oracle.TARGET, options).report.overlapped_cycles
    budget = oracle.infeasible_budget(points[0].sram_bytes)
    with pytest.raises(BudgetError):
        compile_graph(graph, oracle.TARGET, dataclasses.replace(options, sram_budget=budget))


def test_points_in_tiles_are_those_of_compiles() -> None:
    graph, target = Chain("wide", (1, 24, 24, 16)).conv(32, 3).conv(16, 3).graph(), targets.get("imx95")
    points = pareto(graph, target)
    assert len(points) > 3
    for point in points:
        report = compile_graph(graph, target, CompileOptions(sram_budget=point.sram_bytes)).report
        assert report.sram_bytes <= point.sram_bytes and report.cycles == point.cycles
    assert points[-1].cycles == compile_graph(graph, target).report.cycles
    # No compile is faster than the point of the most memory below its budget.
    made, ends = prepared(graph, kept=True), (points[0].sram_bytes, points[-1].sram_bytes)
    for budget in np.linspace(*ends, 23).astype(int).tolist():
        fitted = within_budget(graph, made.tasks, target, CompileOptions(sram_budget=budget))
        assert fitted.cycles(target) == min(point.cycles for point in points if point.sram_bytes <= budget)
    with pytest.raises(BudgetError):
        pareto(graph, target.with_sram(1))


def test_graphs_one_after_the_other_share_their_memory() -> None:
    one = (Point(10, 9), Point(20, 5))
    other = (Point(15, 8), Point(18, 4), Point(30, 1))
    assert one_after_the_other([one, other]) == (Point(15, 17), Point(18, 13), Point(20, 9), Point(30, 6))


def test_points_that_gain_less_than_two_percent_are_left_out_but_not_the_fastest() -> None:
    cycles = (1000, 990, 979, 960, 950, 940, 939)
    points = tuple(Point(size, each) for size, each in enumerate(cycles, 1))
    assert [point.cycles for point in one_after_the_other([points])] == [1000, 979, 950, 939]
    assert one_after_the_other([points[:2]]) == points[:2]
    assert one_after_the_other([points[:1]]) == points[:1]
    assert one_after_the_other([]) == ()
