# SPDX-License-Identifier: BSD-3-Clause
"""Programs for NPUs that work on a memory of their own: tiles that are copied to it and back while kernels compute."""

from __future__ import annotations

import dataclasses
from collections import Counter
from functools import cache

import numpy as np
import pytest

from bench.traffic_of_choices import least_moved_bytes
from openneutron import targets
from openneutron.compiler import Compiled, CompileOptions, compile_graph
from openneutron.compiler.driver import prepared
from openneutron.compiler.emit.audit import audit
from openneutron.compiler.emit.emit import emit
from openneutron.compiler.schedule.schedule import (
    CopyEngine,
    Fetch,
    Loop,
    Rows,
    Schedule,
    Step,
    Timeline,
    Wait,
    Whole,
    overlapped_cycles,
)
from openneutron.compiler.search.fitted import Fitted
from openneutron.compiler.search.tiles import fit, search
from openneutron.compiler.search.tiles.fit import TiledTask, in_groups
from openneutron.compiler.search.tiles.search import TilePlan, TileSearch, overlapped
from openneutron.compiler.search.tiles.streams import compact
from openneutron.compiler.search.tuning import TUNING
from openneutron.compiler.select.calls import Storages, View
from openneutron.errors import BudgetError
from openneutron.ir import Graph
from openneutron.isa import base, decode
from scripts.published_networks import Chain, mobilenet_v1
from tests.support import joined_graphs, oracle, stateful_graphs
from tests.support.attention_graphs import attention, block
from tests.support.dense_blocks import dense_block
from tests.support.random_graphs import Builder, several
from tests.support.random_transposed import transpose_conv

OPTIONS = CompileOptions(target="imx95", check=True)


def compiled(graph: Graph, kib: float) -> Compiled:
    return compile_graph(graph, targets.get("imx95").with_sram(kib), OPTIONS)


@cache
def network(kib: int) -> Compiled:
    return compiled(mobilenet_v1(), kib)


def assert_equal_to_litert(graph: Graph, made: Compiled, seed: int) -> None:
    given = oracle.random_inputs(graph, seed)
    results = oracle.simulated_outputs(made, given)
    for result, wanted in zip(results, oracle.reference_outputs(graph, given), strict=True):
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("kib", [256, 1024])
def test_a_network_moves_in_tiles_and_its_bytes_are_litert_s(kib: int) -> None:
    made = network(kib)
    report, code = made.report, decode(made.program)
    assert code.prefetch_size == report.arena_bytes == report.sram_bytes <= kib * 1024
    assert code.scratch_size == report.external_bytes
    kernels = [operator for operator in code.operators if operator.row.name != "move_s8"]
    bases = {code.buffers[operator[name]]["base"] for operator in kernels for name in ("input", "output")}
    assert bases == {base("PREFETCH")}
    assert report.traffic_bound_bytes <= report.moved_bytes + report.fetched_bytes
    compute = report.cycles - report.copy_cycles
    assert report.cycles == report.overlapped_cycles <= 1.15 * max(compute, report.engine_cycles)
    assert_equal_to_litert(made.graph, made, kib)


def test_a_tensor_that_the_memory_of_the_npu_can_not_hold_is_kept_outside() -> None:
    small, large = (network(kib).report for kib in (256, 1024))
    assert (small.external_bytes > 0, large.external_bytes) == (True, 0)
    assert large.moved_bytes == large.io_bytes < small.moved_bytes


def test_a_convolution_whose_tensors_and_constants_do_not_fit_is_divided_by_channels() -> None:
    graph = Chain("wide", (1, 8, 8, 64)).conv(128, 3).graph()
    with pytest.raises(BudgetError):
        compiled(graph, 4)
    made = compiled(graph, 16)
    parts = [call for call in made.schedule.calls if not call.is_transfer]
    assert len(parts) > 4 and all(call.views["output"].extents[3] < 128 for call in parts)
    assert made.report.sram_bytes <= 16 * 1024
    assert_equal_to_litert(graph, made, 0)


@pytest.mark.parametrize(("heads", "kib", "groups"), [(4, 64, 1), (4, 10, 4), (6, 16, 6)])
def test_attention_whose_keys_and_values_do_not_fit_is_divided_by_heads(heads: int, kib: int, groups: int) -> None:
    """A head has 128 keys and values of 16 channels, 4 KiB in all."""
    graph = block(heads, 1, 128, heads, 16)
    made = compiled(graph, kib)
    parts = [call for call in made.schedule.calls if call.kernel == "attention_s8"]
    assert [call.views["key"].extents[2] for call in parts] == [heads // groups] * groups
    assert made.report.sram_bytes <= kib * 1024
    assert_equal_to_litert(graph, made, 0)


def test_heads_are_in_as_few_groups_as_half_of_the_memory_holds() -> None:
    (storages, calls), *_ = prepared(block(0, 1, 128, 6, 16)).tasks.selected
    for kib, groups in ((64, 1), (20, 3), (16, 3), (8, 6)):
        made = in_groups(calls, storages, targets.get("imx95"), kib * 1024)
        heads = [call.views["query"].extents[2] for call in made if call.traits.columns_apart]
        assert heads == [6 // groups] * groups


@pytest.mark.parametrize("seed", range(4))
def test_attention_has_a_schedule_for_each_budget_above_the_least(seed: int) -> None:
    graph = attention(seed)
    with pytest.raises(BudgetError) as caught:
        compile_graph(graph, targets.get("imx95"), dataclasses.replace(OPTIONS, sram_budget=16))
    least = caught.value.least_bytes
    for budget in (least, 3 * least // 2):
        made = compile_graph(graph, targets.get("imx95"), dataclasses.replace(OPTIONS, sram_budget=budget))
        assert made.report.sram_bytes <= budget
        assert_equal_to_litert(graph, made, seed)


def test_a_joined_call_whose_constants_do_not_fit_is_two_calls_again() -> None:
    graph = joined_graphs.graph_of("gelu", shape=(1, 400))
    large, small = compiled(graph, 64), compiled(graph, 8)
    kernels = [[call.kernel for call in made.schedule.calls if not call.is_transfer] for made in (large, small)]
    assert len(kernels[0]) == 1 and kernels[1].count("lookup_s8") == 1
    assert_equal_to_litert(graph, small, 0)


def test_the_error_names_a_memory_that_suffices() -> None:
    graph = Chain("wide", (1, 8, 8, 64)).conv(128, 3).graph()
    with pytest.raises(BudgetError) as caught:
        compiled(graph, 4)
    assert str(caught.value).startswith("'wide': it needs ")
    least = caught.value.least_bytes
    assert 4096 < compiled(graph, least / 1024).report.sram_bytes <= least


def test_the_error_for_a_budget_smaller_than_the_states_names_one_that_suffices() -> None:
    graph = stateful_graphs.streaming_convolution()
    with pytest.raises(BudgetError) as caught:
        compile_graph(graph, targets.get("imx95"), dataclasses.replace(OPTIONS, sram_budget=1))
    options = dataclasses.replace(OPTIONS, sram_budget=caught.value.least_bytes)
    assert 0 < compile_graph(graph, targets.get("imx95"), options).report.sram_bytes <= caught.value.least_bytes


def test_nothing_is_loaded_for_a_window_of_padding_alone() -> None:
    """A transposed convolution has a row of its bias alone, which a call of its own computes."""
    b = Builder(4)
    source = b.input((1, b.up_to(6), int(b.random.integers(4, 20)), b.up_to(5)))
    whole = transpose_conv(b, source)
    assert whole is not None and whole.shape == (1, 13, 56, 5)
    size = (1, 3, 28, 5)
    part = b.node("slice", [whole, b.integers(0, 0, 19, 0), b.integers(*size)], b.new(size, whole.quant))
    graph = b.graph([b.node("relu", [part], b.new(size, whole.quant))])
    assert_equal_to_litert(graph, compile_graph(graph, targets.get("imx95"), OPTIONS), 0)


@pytest.mark.parametrize("rest", [1, 8])
def test_constants_are_aligned_at_a_budget_that_is_not(rest: int) -> None:
    graph = Chain("deep", (1, 16, 16, 8)).conv(16, 3).conv(16, 3).conv(16, 3).graph()
    options = dataclasses.replace(OPTIONS, sram_budget=7 * 1024 + rest)
    made = compile_graph(graph, targets.get("imx95"), options)
    assert made.report.fetched_bytes > 0
    assert_equal_to_litert(graph, made, 0)


def test_random_graphs() -> None:
    count = 0
    for seed in range(14):
        graph = several(seed)
        for kib in (64, 2):
            try:
                made = compiled(graph, kib)
            except BudgetError:
                continue
            assert_equal_to_litert(graph, made, seed)
            count += 1
    assert count > 20


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_more_memory_never_moves_more_bytes_and_never_takes_longer(seed: int) -> None:
    graph = several(seed)
    before = None
    for size in range(2048, 40960, 3584):
        try:
            report = compile_graph(graph, targets.get("imx95"), CompileOptions(target="imx95", sram_budget=size)).report
        except BudgetError:
            assert before is None
            continue
        if before is not None:
            assert (report.cycles <= before.cycles, report.moved_bytes <= before.moved_bytes) == (True, True), size
        before = report
    assert before is not None


def test_of_few_calls_the_fastest_selection_is_taken() -> None:
    # The parts of a divided layer are faster than a joined call: their constants arrive one by one. A joined call has no parts.
    graph = joined_graphs.graph_of("gelu", shape=(1, 4000))
    alone = []
    for selection in prepared(graph).tasks.selected:
        fitted = TiledTask.of([selection], targets.get("imx95")).within(128 * 1024)
        assert isinstance(fitted, Fitted)
        alone.append(fitted.cycles(targets.get("imx95")))
    assert compiled(graph, 128).report.cycles == min(alone) < alone[0]


@pytest.mark.parametrize("seed", [6, 12])
def test_more_memory_is_never_slower_with_copies_as_views(seed: int) -> None:
    """A budget is between those of two selections: the one with fewer copies needs more memory."""
    graph = dense_block(seed)
    assert len(prepared(graph).tasks.selected) > 1
    reports = []
    for size in range(320, 560, 16):
        try:
            reports.append(compile_graph(graph, targets.get("imx95"), CompileOptions(sram_budget=size)).report)
        except BudgetError:
            assert not reports
    cycles, moved = [each.cycles for each in reports], [each.moved_bytes for each in reports]
    assert cycles == sorted(cycles, reverse=True) and moved == sorted(moved, reverse=True)
    assert cycles[-1] < cycles[0]


def test_a_state_that_leaves_memory_to_later_calls_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    # After the fastest states of a cut, no later call fits 1,536 bytes, so that the plan of a smaller memory was taken.
    graph = several(26)
    made = compiled(graph, 1.5)
    assert_equal_to_litert(graph, made, 0)
    once = TileSearch._shortest
    monkeypatch.setattr(TileSearch, "_shortest", lambda search, budget, _: once(search, budget, False))
    assert made.report.cycles < compiled(graph, 1.5).report.cycles


def test_all_plans_of_a_graph_are_compared_unless_it_has_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[TilePlan] = []
    schedules = search._schedules

    def spied(plan: TilePlan, storages: Storages) -> list[search._Unplaced]:
        plans.append(plan)
        return schedules(plan, storages)

    monkeypatch.setattr(search, "_schedules", spied)
    all_plans, count = compiled(mobilenet_v1(), 640), len(plans)
    monkeypatch.setattr(fit, "TUNING", dataclasses.replace(TUNING, many_calls=0))
    first_enough = compiled(mobilenet_v1(), 640)
    assert count > len(plans) - count > 0
    assert all_plans.report.cycles <= first_enough.report.cycles


def least_moved(graph: Graph, size: int, most: int = 1 << 40) -> int:
    return least_moved_bytes(prepared(graph).tasks.selected, targets.get("imx95"), size, most)


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 5])
def test_no_plan_moves_fewer_bytes_than_the_bound_over_the_choices(seed: int) -> None:
    graph = several(seed)
    for kib in (64, 4):
        try:
            report = compiled(graph, kib).report
        except BudgetError:
            continue
        least = least_moved(graph, kib * 1024)
        assert report.traffic_bound_bytes - report.fetched_bytes <= least <= report.moved_bytes


def test_the_bound_over_the_choices_counts_a_tensor_that_no_memory_holds() -> None:
    # Each layer's weights and each tensor have 4 KiB: 5 KiB hold one layer's weights and a row, 16 KiB all weights and rows.
    graph = Chain("pair", (1, 8, 8, 64)).conv(64, 1).conv(64, 1).graph()
    assert {kib: least_moved(graph, kib * 1024) for kib in (6, 16)} == {6: 16384, 16: 8192}
    assert compiled(graph, 16).report.moved_bytes == 8192


def test_branches_that_a_graph_alternates_between_are_computed_one_after_the_other() -> None:
    # Three layers of each of two branches on tensors of 72 KiB. In the given order each layer of a branch is stored and loaded again.
    chain = Chain("heads", (1, 96, 96, 8))
    ends = [chain.last] * 2
    for _ in range(3):
        for branch in range(2):
            chain.last = ends[branch]
            ends[branch] = chain.conv(8, 3).last
    graph = Graph("heads", chain.tensors, tuple(chain.nodes), ("input",), tuple(end.name for end in ends))
    made = compiled(graph, 64)
    assert made.report.moved_bytes == 4 * 96 * 96 * 8  # the input for each branch, and the outputs
    assert least_moved(graph, 64 * 1024) == 3 * 96 * 96 * 8
    assert_equal_to_litert(graph, made, 0)


def test_copies_at_borders_of_segments_run_beside_kernels_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Schedule, Schedule]] = []

    def spied(schedule: Schedule, storages: Storages) -> Schedule:
        seen.append((schedule, overlapped(schedule, storages)))
        return seen[-1][1]

    monkeypatch.setattr(search, "overlapped", spied)
    graph = Chain("three", (1, 32, 32, 16)).conv(16, 3).conv(16, 3).conv(16, 3).graph()
    made = compiled(graph, 12)
    assert_equal_to_litert(graph, made, 0)
    moved = [(before, after) for before, after in seen if before.steps != after.steps]
    assert moved
    for before, after in moved:
        assert Counter(before.steps) == Counter(after.steps)
        early, late = (overlapped_cycles(each, {}, targets.get("imx95")) for each in (after, before))
        assert early <= late


def _without_waits_in_loops(schedule: Schedule, channel: int) -> Schedule:
    def changed(step: Step) -> Step:
        if not isinstance(step, Loop):
            return step
        return dataclasses.replace(step, body=tuple(part for part in step.body if part != Wait(channel)))

    return dataclasses.replace(schedule, steps=tuple(map(changed, schedule.steps)))


@pytest.mark.parametrize(
    ("channel", "said"), [(15, "are still being copied"), (14, "are overwritten before they are copied")]
)
def test_the_audit_finds_bytes_that_have_not_arrived_or_have_not_left(channel: int, said: str) -> None:
    made = network(256)
    wrong = _without_waits_in_loops(made.schedule, channel)
    program = emit(made.legalized, wrong, made.storages, made.layout, targets.get("imx95"))
    assert any(said in finding for finding in audit(program, wrong, made.storages).findings)


def test_kernels_wait_for_their_tiles_and_constants_for_tiles() -> None:
    engine = CopyEngine()
    constant = engine.fetch(8)
    assert engine.move(4) == 4
    engine.advance(10)
    assert (engine.fetched, engine.arrival(constant)) == (6, 12)


def test_the_time_of_each_step_adds_up() -> None:
    made = network(256)
    fetched = dict.fromkeys(range(len(made.schedule.calls)), 0)
    steps = [step for step in made.schedule.steps if not isinstance(step, Fetch)]
    line = Timeline(dataclasses.replace(made.schedule, steps=tuple(steps)), fetched, targets.get("imx95"))
    times = line.run()
    assert sum(each.spent for each in times) == line.engine.now
    assert sum(each.moving for each in times) + max(0, line.engine.moved - line.engine.now) == sum(
        operator.cycles for operator in made.report.operators if operator.kernel == "move_s8"
    )
    assert all(isinstance(step, Whole | Rows | Loop | Wait) for step in steps)


@pytest.mark.parametrize(
    ("view", "size", "by_rows"),
    [
        (View("x", (1, 4, 6, 8), (192, 48, 8, 1)), 192, True),
        (View("x", (1, 4, 6, 3), (192, 48, 8, 1), 5), 72, True),  # some channels
        (View("x", (1, 4, 6, 3), (72, 6, 1, 24)), 72, True),  # a planar image
        (View("x", (1, 4, 6, 4), (192, 96, 16, 2), 0, 2), 4 * 6 * 8, True),
        (View("x", (1, 4, 5, 16), (192, 48, 8, 1)), 3 * 48 + 4 * 8 + 16, False),  # columns that share bytes
        (View("x", (1, 4, 3, 8), (0, 0, 8, 1)), 24, False),  # one row again and again
        (View("x", (2, 4, 6, 8), (192, 48, 8, 1)), 384, False),
    ],
    ids=str,
)
def test_a_copy_has_the_bytes_of_its_view(view: View, size: int, by_rows: bool) -> None:
    made = compact(view, "copy")
    assert (made.size_bytes, made.by_rows) == (size, by_rows)
    memory = np.arange(1 << 10, dtype=np.uint16).astype(np.uint8)
    copy = np.zeros(size, np.uint8)
    _seen(made.inner, copy)[:] = _seen(made.outer, memory)
    np.testing.assert_array_equal(_seen(made.view, copy), _seen(view, memory))


def _seen(view: View, memory: np.ndarray) -> np.ndarray:
    data = memory[view.offset :]
    size = view.element_bytes
    return np.lib.stride_tricks.as_strided(data, (*view.extents, size), (*view.pitches, 1))
