# SPDX-License-Identifier: BSD-3-Clause
"""Constants that come to SRAM ahead of their use: the right bytes at the right time, within the buffer, never slower."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ctypes import CFUNCTYPE, byref, c_uint32, c_void_p

import numpy as np
import pytest

from openneutron.compiler import Compiled, CompileOptions, compile_graph
from openneutron.compiler.emit.emit import packed
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.place.place import Layout, lay_out
from openneutron.compiler.place.prefetch import (
    ENDLESS,
    ENOUGH,
    LOWEST,
    ORDERS,
    CutSteps,
    PrefetchPlan,
    PrefetchSearch,
    Simulation,
    Transfer,
    all_plans,
    fastest_plan,
    good_plan,
)
from openneutron.compiler.rewrite.passes import select_calls
from openneutron.compiler.schedule.schedule import (
    Cuttable,
    Fetch,
    Schedule,
    Wait,
    calls_in,
    copy_cycles,
    durations,
    edges,
    fetched_bytes,
    fetched_sizes,
    overlapped_cycles,
    split_calls,
    whole_schedule,
)
from openneutron.device.simulator import library
from openneutron.errors import BudgetError
from openneutron.ir import Graph
from openneutron.isa import decode
from openneutron.options import ARENA
from scripts.published_networks import Chain, cifarnet, mobilenet_v1
from tests.support import oracle
from tests.support.random_graphs import several

FETCH = CompileOptions(prefetch_constants=True)


class Config(ctypes.Structure):
    """NeutronConfig."""

    _fields_ = [
        ("copy", CFUNCTYPE(None, c_void_p, c_void_p, c_uint32, c_uint32)),
        ("wait", CFUNCTYPE(None, c_uint32)),
    ]


@contextmanager
def late_port() -> Iterator[list[int]]:
    """A port whose bytes arrive when they are waited for and not before; until then there is something else."""
    waiting: dict[int, list[tuple[int, int, int]]] = {}
    copied: list[int] = []

    def copy(to: int, source: int, size: int, channel: int) -> None:
        waiting.setdefault(channel, []).append((to, source, size))
        ctypes.memset(to, 0x55, size)

    def wait(channel: int) -> None:
        for to, source, size in waiting.pop(channel, ()):
            ctypes.memmove(to, source, size)
            copied.append(size)

    config = Config(Config._fields_[0][1](copy), Config._fields_[1][1](wait))
    library().neutronSetConfig(byref(config))
    try:
        yield copied
        assert not waiting, "copies that nobody waits for"
    finally:
        library().neutronSetConfig(byref(Config()))


def prefetch_of(graph: Graph) -> PrefetchSearch:
    storages, calls = select_calls(legalize(graph))
    schedule = whole_schedule(calls)
    return PrefetchSearch(schedule, lay_out(schedule, storages, ARENA), storages, oracle.TARGET)


def branches() -> Graph:
    """Convolutions of different sizes, one of them cut in small buffers, and a constant that is added."""
    chain = Chain("branches", (1, 8, 8, 8)).conv(40, 3).conv(64, 3).conv(24, 1).mean().flatten().fully_connected(10)
    return chain.graph()


@pytest.mark.parametrize("budget", [None, 1.0, 1.3, 2.0])
def test_bytes_that_arrive_late_are_waited_for(budget: float | None) -> None:
    graph = branches()
    least = _least(graph)
    options = CompileOptions(
        prefetch_constants=True, sram_budget=None if budget is None else int(least * budget) // 16 * 16
    )
    with late_port() as copied:
        compiled = oracle.assert_bit_exact(graph, options=options)
    once = _fetched(compiled) + compiled.report.moved_bytes
    assert sum(copied) == 2 * once, "each of two runs copies everything once"


def _least(graph: Graph) -> int:
    with pytest.raises(BudgetError) as raised:
        compile_graph(graph, oracle.TARGET, CompileOptions(prefetch_constants=True, sram_budget=1))
    assert raised.value.least_bytes > 0
    return raised.value.least_bytes


def _fetched(compiled: Compiled) -> int:
    return sum(item["size"] for item in decode(compiled.program).code if item.row.name == "FETCH")


def test_random_graphs_at_their_least_budget() -> None:
    for seed in range(100, 112):
        graph = several(seed)
        options = CompileOptions(prefetch_constants=True, sram_budget=_least(graph))
        with late_port():
            oracle.assert_bit_exact(graph, (seed,), options)


@pytest.mark.parametrize("graph", [cifarnet(), mobilenet_v1()], ids=["cifarnet", "mobilenet_v1"])
def test_more_memory_is_never_slower(graph: Graph) -> None:
    search = prefetch_of(graph)
    plans = all_plans([search])
    assert len(plans) >= 5
    for smaller, larger in itertools.pairwise(plans):
        assert smaller.budget_bytes < larger.budget_bytes
        assert smaller.cycles > larger.cycles
    for plan in plans:
        assert plan.size_bytes <= plan.budget_bytes
        assert search.bound(plan.budget_bytes) <= plan.cycles
        schedule, layout = plan.laid_out(ARENA)
        assert layout.scratch_bytes + schedule.prefetch_bytes == plan.size_bytes
        sizes = fetched_sizes(schedule, search.storages)
        computed = durations(schedule, oracle.TARGET)
        assert overlapped_cycles(schedule, sizes, oracle.TARGET) == plan.cycles
        assert plan.cycles <= sum(computed.values()) + copy_cycles(schedule, sizes, oracle.TARGET)
        _assert_in_order(schedule, layout, sizes)
    assert good_plan(search).cycles <= ENOUGH * plans[-1].cycles + 1
    for plan in plans:
        found = fastest_plan([[search]], plan.budget_bytes, 0)
        assert isinstance(found, PrefetchPlan) and found.cycles == plan.cycles
    assert fastest_plan([[search]], plans[0].budget_bytes - 1, 0) == plans[0].budget_bytes


@pytest.mark.parametrize(("kib", "cycles"), [(4, 36), (2, 48)])
def test_the_worked_example(kib: int, cycles: int) -> None:
    """Three steps of 10 cycles, each with a constant of 2 KiB whose copy takes 6 cycles; see ``prefetch_trial``."""
    transfers = [Transfer(2048, 6, step, step) for step in range(3)]
    steps = CutSteps([10] * 3, range(3), transfers, 30, 18)
    simulation = Simulation(steps, lambda first, last: [(0, ENDLESS)], kib * 1024, LOWEST)
    assert simulation.run(ENDLESS, ahead=True)
    assert simulation.now == cycles
    assert simulation.top == kib * 1024


@pytest.mark.parametrize("seed", range(6))
def test_random_trials(seed: int) -> None:
    """Pieces, amounts of memory and places at random: what comes is where no tensor is, in time, and takes what is said."""
    random = np.random.default_rng(seed)
    search = prefetch_of((cifarnet(), branches())[seed % 2])
    least = search.smallest().size_bytes
    found = 0
    for _ in range(40):
        capacity = int(random.integers(least, search.most_bytes)) // 16 * 16
        counts = {
            u.call: int(random.integers(1, u.blocks + 1)) for u in search.uses if u.blocks > 1 and random.integers(2)
        }
        order = ORDERS[random.integers(len(ORDERS))]
        trial = search.trial(counts, capacity, ENDLESS, bool(random.integers(2)), order)
        if trial is None:
            continue
        found += 1
        assert search.bound(capacity) <= trial.cycles
        assert max(trial.size_bytes, search.arena_bytes) <= capacity
        schedule, layout = PrefetchPlan(search, trial, capacity).laid_out(ARENA)
        sizes = fetched_sizes(schedule, search.storages)
        assert overlapped_cycles(schedule, sizes, oracle.TARGET) == trial.cycles
        _assert_in_order(schedule, layout, sizes)
    assert found > 5


def _assert_in_order(schedule: Schedule, layout: Layout, sizes: Mapping[int, int]) -> None:
    """Nothing is overwritten before its last use, and everything is waited for before its first."""
    offsets = layout.placement.offsets
    last = {call: place for place, step in enumerate(schedule.steps) for call in calls_in(step)}
    held: dict[int, tuple[int, int]] = {}
    under_way: dict[int, list[int]] = {}
    ready: set[int] = set()
    for place, step in enumerate(schedule.steps):
        if isinstance(step, Fetch):
            start, end = step.destination, step.destination + sizes[step.call]
            assert end <= layout.scratch_bytes + schedule.prefetch_bytes
            assert end <= layout.scratch_bytes or start >= layout.scratch_bytes, "it lies in one of the two"
            for call, (other_start, other_end) in held.items():
                assert last[call] < place or end <= other_start or start >= other_end, (call, step)
            for item in layout.items:
                apart = offsets[item.name] >= end or offsets[item.name] + item.size <= start
                assert apart or item.last < place or item.first > last[step.call], (item, step)
            held[step.call] = (start, end)
            under_way.setdefault(step.channel, []).append(step.call)
        elif isinstance(step, Wait):
            ready.update(under_way.pop(step.channel, ()))
        else:
            assert ready.issuperset(call for call in calls_in(step) if call in sizes)
    assert not under_way


@pytest.mark.imxrt700
def test_a_dma_hides_nearly_all_copies_of_mobilenet_v1() -> None:
    report = compile_graph(mobilenet_v1(), oracle.TARGET, FETCH).report
    compute = report.cycles - report.copy_cycles
    assert report.overlapped_cycles <= 1.05 * max(compute, report.copy_cycles)
    assert report.copy_cycles > 0.4 * compute


def test_pieces_of_a_convolution_are_its_channels() -> None:
    storages, calls = select_calls(legalize(branches()))
    whole = whole_schedule(calls)
    blocks = {index: Cuttable(call, storages).blocks for index, call in enumerate(calls)}
    counts = {index: max(1, count // 2) for index, count in blocks.items()}
    cut = split_calls(whole, storages, counts)
    assert len(cut.calls) == sum(counts.values()) > len(whole.calls)
    for index, call in enumerate(whole.calls):
        parts = [part for part in cut.calls if part.name == call.name or part.name.startswith(f"{call.name}/")]
        assert len(parts) == counts[index]
        assert sum(part.views["output"].extents[3] for part in parts) == call.views["output"].extents[3]
        pieces = list(map(packed, parts))
        for key, blob in packed(call).items():
            assert b"".join(piece[key] for piece in pieces) == blob
        for part, (first, last) in zip(parts, edges(blocks[index], counts[index]), strict=True):
            assert fetched_bytes(part, storages) == Cuttable(call, storages).piece_bytes(last - first)
    assert split_calls(whole, storages, {}) == whole


def test_a_budget_below_the_least_names_it() -> None:
    graph = branches()
    least = _least(graph)
    assert (
        compile_graph(
            graph, oracle.TARGET, CompileOptions(prefetch_constants=True, sram_budget=least)
        ).report.sram_bytes
        <= least
    )
    options = CompileOptions(prefetch_constants=True, sram_budget=oracle.infeasible_budget(least))
    with pytest.raises(BudgetError, match=r"it needs .* KiB .* of SRAM") as raised:
        compile_graph(graph, oracle.TARGET, options)
    assert raised.value.least_bytes == least or oracle.TARGET.moves_tiles
    assert f"KiB ({raised.value.least_bytes} bytes) of SRAM" in str(raised.value)
