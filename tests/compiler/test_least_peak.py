# SPDX-License-Identifier: BSD-3-Clause
"""The least memory of all schedules is exact, and nothing is searched where a bound shows that nothing fits."""

from __future__ import annotations

import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.rewrite.passes import select_calls
from openneutron.compiler.search.cascade import search
from openneutron.compiler.search.fit import Task
from openneutron.errors import BudgetError
from scripts.published_networks import cifarnet
from tests.support.oracle import TARGET
from tests.support.random_images import image_graph


@pytest.mark.parametrize("seed", range(12))
def test_a_plan_takes_the_least_and_none_takes_a_byte_less(seed: int) -> None:
    storages, calls = select_calls(legalize(image_graph(seed)))
    options = CompileOptions(io_place=("arena", "caller")[seed % 2])
    for each in Task(calls, storages, TARGET, options).cascades():
        found = each.plans
        least = found.least().peak_bytes
        assert each.floor_bytes <= least
        plan = found.plan(least)
        assert plan is not None and plan.peak_bytes == least
        assert found.plan(least - 1) is None


@pytest.mark.without_tiles("no cascade without transfers is evaluated for tiles")
@pytest.mark.parametrize("io", ["arena", "caller"])
def test_nothing_is_evaluated_for_a_budget_below_the_bound(io: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = cifarnet()
    storages, calls = select_calls(legalize(graph))
    evaluated = search._Candidate.evaluated
    counted = []

    def counting(self: search._Candidate, *args: object) -> object:
        counted.append(self)
        return evaluated(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(search._Candidate, "evaluated", counting)
    for each in Task(calls, storages, TARGET, CompileOptions(io_place=io)).cascades():
        assert each.fastest(each.floor_bytes - 1) is None
    assert not counted
    with pytest.raises(BudgetError) as caught:
        compile_graph(graph, TARGET, CompileOptions(sram_budget=1, io_place=io))
    for_nothing = len(counted)
    counted.clear()
    compile_graph(graph, TARGET, CompileOptions(sram_budget=caught.value.least_bytes, io_place=io))
    assert for_nothing <= 1.3 * len(counted), "to find that nothing fits takes more than to find what fits"
