# SPDX-License-Identifier: BSD-3-Clause
"""Constants that come to SRAM ahead of their use: the right bytes at the right time, within the buffer, never slower."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, byref, c_uint32, c_void_p

import pytest

from openneutron.compiler import Compiled, CompileOptions, compile_graph
from openneutron.compiler.compile import select_calls
from openneutron.compiler.legalize import legalize
from openneutron.compiler.prefetch import ENOUGH, Plan, choose_plan, fetched_sizes, prefetch_plans
from openneutron.compiler.schedule import Fetch, Wait, calls_in, whole_schedule
from openneutron.compiler.split import split_calls
from openneutron.errors import BudgetError
from openneutron.ir import Graph
from openneutron.isa import decode
from openneutron.simulator.library import library
from scripts.published_networks import Chain, cifarnet, mobilenet_v1
from tests import oracle
from tests.random_graphs import several

FETCH = CompileOptions(fetch_constants_to_sram=True)


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


def plans_of(graph: Graph) -> tuple[Plan, ...]:
    legal = legalize(graph)
    storages, calls = select_calls(legal)
    return prefetch_plans(whole_schedule(calls), storages, oracle.TARGET)


def branches() -> Graph:
    """Convolutions of different sizes, one of them cut in small buffers, and a constant that is added."""
    chain = Chain("branches", (1, 8, 8, 8)).conv(40, 3).conv(64, 3).conv(24, 1).mean().flatten().fully_connected(10)
    return chain.graph()


@pytest.mark.parametrize("budget", [None, 1.0, 1.3, 2.0])
def test_bytes_that_arrive_late_are_waited_for(budget: float | None) -> None:
    graph = branches()
    least = _least(graph)
    options = CompileOptions(
        fetch_constants_to_sram=True, sram_budget=None if budget is None else int(least * budget) // 16 * 16
    )
    with late_port() as copied:
        compiled = oracle.assert_bit_exact(graph, options=options)
    assert sum(copied) == 2 * _fetched(compiled), "each of two runs copies everything once"


def _least(graph: Graph) -> int:
    with pytest.raises(BudgetError) as raised:
        compile_graph(graph, oracle.TARGET, CompileOptions(fetch_constants_to_sram=True, sram_budget=1))
    assert raised.value.least_bytes > 0
    return raised.value.least_bytes


def _fetched(compiled: Compiled) -> int:
    return sum(item["size"] for item in decode(compiled.program).code if item.row.name == "FETCH")


def test_random_graphs_at_their_least_budget() -> None:
    for seed in range(100, 112):
        graph = several(seed)
        options = CompileOptions(fetch_constants_to_sram=True, sram_budget=_least(graph))
        with late_port():
            oracle.assert_bit_exact(graph, (seed,), options)


@pytest.mark.parametrize("graph", [cifarnet(), mobilenet_v1()], ids=["cifarnet", "mobilenet_v1"])
def test_larger_buffers_are_never_slower(graph: Graph) -> None:
    plans = plans_of(graph)
    assert len(plans) >= 5
    for smaller, larger in itertools.pairwise(plans):
        assert smaller.size_bytes < larger.size_bytes
        assert smaller.cycles > larger.cycles
        assert smaller.blocking_cycles >= larger.blocking_cycles
    for plan in plans:
        assert plan.cycles <= plan.blocking_cycles
        _assert_in_order(plan)
    chosen = [choose_plan(plans, room) for room in range(0, plans[-1].size_bytes + 4096, 4096)]
    cycles = [plan.cycles for plan in chosen if plan is not None]
    assert cycles == sorted(cycles, reverse=True)
    assert cycles[-1] <= ENOUGH * plans[-1].cycles


def _assert_in_order(plan: Plan) -> None:
    """Nothing is overwritten before its last use, and everything is waited for before its first."""
    schedule = plan.schedule
    legal_sizes = {step.call: 0 for step in schedule.steps if isinstance(step, Fetch)}
    last = {call: place for place, step in enumerate(schedule.steps) for call in calls_in(step)}
    sizes = {
        call: sum(-(-len(blob) // 16) * 16 for blob in schedule.calls[call].constants.values()) for call in legal_sizes
    }
    held: dict[int, tuple[int, int]] = {}
    under_way: dict[int, int] = {}
    ready: set[int] = set()
    for place, step in enumerate(schedule.steps):
        if isinstance(step, Fetch):
            start, end = step.destination, step.destination + sizes[step.call]
            assert end <= schedule.prefetch_bytes
            for call, (other_start, other_end) in held.items():
                assert last[call] < place or end <= other_start or start >= other_end, (call, step)
            held[step.call] = (start, end)
            assert step.channel not in under_way
            under_way[step.channel] = step.call
        elif isinstance(step, Wait):
            ready.add(under_way.pop(step.channel))
        else:
            assert ready.issuperset(call for call in calls_in(step) if call in sizes)
    assert not under_way


def test_a_dma_hides_nearly_all_copies_of_mobilenet_v1() -> None:
    report = compile_graph(mobilenet_v1(), oracle.TARGET, FETCH).report
    compute = report.cycles - report.copy_cycles
    assert report.overlapped_cycles <= 1.05 * max(compute, report.copy_cycles)
    assert report.copy_cycles > 0.4 * compute


def test_pieces_of_a_convolution_are_its_channels() -> None:
    legal = legalize(branches())
    storages, calls = select_calls(legal)
    whole = whole_schedule(calls)
    cut = split_calls(whole, 8192)
    assert len(cut.calls) > len(whole.calls)
    for call in whole.calls:
        parts = [part for part in cut.calls if part.name == call.name or part.name.startswith(f"{call.name}/")]
        assert sum(part.views["output"].extents[3] for part in parts) == call.views["output"].extents[3]
        for key, blob in call.constants.items():
            assert b"".join(part.constants[key] for part in parts) == blob
    assert max(fetched_sizes(cut, storages).values()) <= 8192
    assert split_calls(whole, 1 << 20) == whole


def test_a_budget_below_the_least_names_it() -> None:
    graph = branches()
    least = _least(graph)
    assert (
        compile_graph(
            graph, oracle.TARGET, CompileOptions(fetch_constants_to_sram=True, sram_budget=least)
        ).report.sram_bytes
        <= least
    )
    with pytest.raises(BudgetError, match=f"it needs .* KiB \\({least} bytes\\) of SRAM"):
        compile_graph(graph, oracle.TARGET, CompileOptions(fetch_constants_to_sram=True, sram_budget=least - 1))
