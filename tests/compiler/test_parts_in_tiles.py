# SPDX-License-Identifier: BSD-3-Clause
"""Operators on a Neutron-S whose calls write parts of the output that are between one another."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron import targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.driver import prepared
from openneutron.compiler.search.tiles.fit import TileFit, gathered, in_groups
from openneutron.compiler.search.tiles.search import TilePlan, TileSearch
from openneutron.compiler.search.tuning import TUNING
from openneutron.errors import BudgetError, InvalidModelError
from openneutron.ir import DType, Node, Tensor, constant
from scripts.published_networks import Chain
from tests.support import oracle
from tests.support.random_graphs import several, single

TARGET = targets.get("imx95")


@pytest.mark.parametrize("op", ["fill", "mirror_pad", "pack", "tile"])
def test_parts_are_gathered_and_their_bytes_are_litert_s(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "TARGET", TARGET)
    for seed in range(3):
        oracle.assert_bit_exact(single(op, seed), (seed,))


def test_a_copy_writes_the_gathered_output() -> None:
    ((separate, given),) = prepared(single("tile", 0)).tasks.selected
    calls, storages = gathered(given, separate)
    assert len(calls) == len(given) + 1
    (name,) = {storages[call.views["output"].tensor].name for call in calls[:-1]}
    assert storages.storages[name].is_scratch
    assert storages[calls[-1].views["output"].tensor].output == 0


def test_parts_behind_one_another_are_not_gathered() -> None:
    compiled = compile_graph(single("concatenation", 1), TARGET)
    storages, calls = prepared(compiled.graph).tasks.selected[0]
    assert gathered(calls, storages)[0] == tuple(calls)


def test_a_graph_without_a_schedule_names_no_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TileFit, "fastest", lambda *_: None)
    monkeypatch.setattr(TileFit, "least", lambda *arguments: arguments[-1])
    with pytest.raises(InvalidModelError) as caught:
        compile_graph(single("tile", 0), TARGET)
    assert str(caught.value) == (
        "'main': there is no schedule for imx95 at any size of its memory. "
        "Leave an operator to the CPU with operators_not_to_delegate."
    )


def test_a_budget_of_one_byte_names_the_least() -> None:
    graph = single("transpose", 0)
    with pytest.raises(BudgetError) as caught:
        compile_graph(graph, TARGET, CompileOptions(sram_budget=1))
    least = caught.value.least_bytes
    assert compile_graph(graph, TARGET, CompileOptions(sram_budget=least)).report.sram_bytes <= least


def test_batches_that_exceed_the_memory_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 1,200 sums of 49 values is a batch; all of them are 58,800 bytes."""
    monkeypatch.setattr(oracle, "TARGET", TARGET.with_sram(32))
    x, y = (oracle.activation(name, shape) for name, shape in (("x", (1200, 49)), ("y", (1200,))))
    node = Node("sum", ("x", "axes"), ("y",), {"keep_dims": False})
    graph = oracle.graph_of([x], [node], [y, constant("axes", np.array([1], np.int32))])
    assert oracle.kernels_of(oracle.assert_bit_exact(graph, (0,))) == ["sum_s8"] * 9


def test_batches_that_exceed_the_memory_many_times_are_in_larger_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a quarter of the memory would be 70 or more, as for the scores of attention with int16 activations."""
    monkeypatch.setattr(oracle, "TARGET", TARGET.with_sram(32))
    x, y = (oracle.activation(name, shape) for name, shape in (("x", (1200, 400)), ("y", (1200,))))
    node = Node("sum", ("x", "axes"), ("y",), {"keep_dims": False})
    graph = oracle.graph_of([x], [node], [y, constant("axes", np.array([1], np.int32))])
    assert oracle.kernels_of(oracle.assert_bit_exact(graph, (0,))) == ["sum_s8"] * TUNING.most_parts


def test_sizes_of_memory_that_make_many_calls_of_few_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each column of a comparison of a column with a row is a call of its own in the smallest memories, a search of seconds."""
    shapes = {"x": (64, 1), "y": (1, 64)}
    result = Tensor("z", (64, 64), DType.BOOL)
    node = Node("equal", ("x", "y"), ("z",))
    graph = oracle.graph_of([oracle.activation(name, shape) for name, shape in shapes.items()], [node], [result])
    searched, plan = [], TileSearch.plan

    def counted(search: TileSearch, budget: int) -> TilePlan | None:
        searched.append(len(search.streams.calls))
        return plan(search, budget)

    monkeypatch.setattr(TileSearch, "plan", counted)
    compile_graph(graph, TARGET)
    assert 1 < max(searched) <= 1 + TUNING.few_calls


def test_a_part_of_an_output_is_not_copied_with_bytes_that_are_not_written_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "TARGET", TARGET)
    oracle.assert_bit_exact(several(93), (93,), CompileOptions(prefetch_constants=True))


@pytest.mark.parametrize(("kib", "widths"), [(512, {192, 16}), (128, {64, 16}), (64, {24, 32})])
def test_a_group_has_channels_for_all_pipelines(kib: int, widths: set[int]) -> None:
    """A group of fewer channels takes as long. Where a group of 64 takes too much of the memory, groups are as equal as blocks permit."""
    graph = Chain("groups", (1, 30, 30, 512)).conv(400, 1).graph()
    storages, calls = prepared(graph).tasks.selected[0]
    groups = [call.views["output"].extents[3] for call in in_groups(calls, storages, TARGET, kib * 1024)]
    assert (sum(groups), set(groups)) == (400, widths)
