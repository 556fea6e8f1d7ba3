# SPDX-License-Identifier: BSD-3-Clause
"""A short run of the fuzzer of targets; ``make soak`` runs a long one."""

from __future__ import annotations

import pytest

from openneutron.compiler import CompileOptions
from openneutron.errors import BudgetError
from tests.fuzz import targets
from tests.support import oracle


@pytest.mark.parametrize("seed", [*range(9), *range(10, 18)])
def test_random_graphs_on_random_targets(seed: int) -> None:
    targets.check(seed)


def test_the_targets_differ_in_every_part() -> None:
    drawn = [targets.target_of(seed) for seed in range(40)]
    assert len({target.npu.pipelines.value for target in drawn}) > 10
    assert {target.npu.data_types.value for target in drawn} == {("int8",), ("int8", "int16")}
    assert {len(target.memories) for target in drawn} == {2, 3, 4}
    assert {target.reads_constants_in_place for target in drawn} == {False, True}
    assert {mode for target in drawn for mode in target.copy_engine.mode.value} == {"synchronous", "background"}


def test_a_graph_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first targets, some have too little memory; the error has the least budget, which another target then has."""
    seed = next(seed for seed in range(100) if targets.check(seed) == 0)
    graph = targets.graph_of(seed)
    monkeypatch.setattr(oracle, "TARGET", targets.target_of(seed))
    fetch, io = bool(seed % 2), ("arena", "caller")[seed // 2 % 2]
    with pytest.raises(BudgetError) as caught:
        oracle.assert_bit_exact(graph, (0,), CompileOptions(prefetch_constants=fetch, io_place=io))
    monkeypatch.setattr(oracle, "TARGET", oracle.TARGET.with_sram(caught.value.least_bytes / 1024))
    oracle.assert_bit_exact(graph, (0,), CompileOptions(prefetch_constants=fetch, io_place=io))
