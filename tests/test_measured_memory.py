# SPDX-License-Identifier: BSD-3-Clause
"""The memory that runs touch, measured by the simulator, is what the report says."""

from __future__ import annotations

from pathlib import Path

import pytest

from openneutron import litert
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.device.simulator import Simulator
from openneutron.errors import BudgetError
from openneutron.ir import Graph
from openneutron.isa.rows import ALIGNMENT
from scripts.published_networks import cifarnet
from tests.support import oracle, random_graphs

KIB = 1024
NETWORKS = {
    "mlperf_tiny_vww96_int8": (30, 40, None),
    "mlperf_tiny_resnet8_int8": (16, 28, None),
    "mlperf_tiny_kws_int8": (10, 13, None),
    "mlperf_tiny_ad01_int8": (None,),
    "cifarnet": (10, 20, None),
}
"""Budgets in KiB; None: whole tensors."""


def assert_measured(graph: Graph, options: CompileOptions) -> None:
    """One run touches all of the arena and of the prefetch buffer but what alignment adds, and nothing above."""
    report = (compiled := compile_graph(graph, oracle.TARGET, options)).report
    with Simulator(compiled.program) as simulator:
        scratch, prefetch = simulator.memory_used(oracle.random_inputs(graph, 0))
    sizes = report.arena_bytes, report.prefetch_bytes
    if oracle.TARGET.moves_tiles:
        sizes = report.external_bytes, report.arena_bytes
    assert scratch <= sizes[0] < scratch + ALIGNMENT, (options, scratch)
    assert prefetch <= sizes[1] < prefetch + ALIGNMENT, (options, prefetch)
    assert options.sram_budget is None or report.sram_bytes <= options.sram_budget
    if options.check:
        assert report.used_bytes == scratch + prefetch


@pytest.mark.parametrize("name", NETWORKS)
def test_the_networks_touch_what_their_reports_say(name: str, shared_models: Path) -> None:
    graph = cifarnet() if name == "cifarnet" else litert.read(shared_models / f"{name}.tflite").graph
    for budget in NETWORKS[name]:
        room = None if budget is None else budget * KIB
        assert_measured(graph, CompileOptions(sram_budget=room, check=True))
        beside = 0 if room is None else sum(graph[tensor].size_bytes for tensor in (*graph.inputs, *graph.outputs))
        assert_measured(graph, CompileOptions(sram_budget=None if room is None else room + beside, io_place="caller"))
    constants = compile_graph(graph, oracle.TARGET).report.weights_bytes
    for io in ("arena", "caller"):
        assert_measured(
            graph, CompileOptions(sram_budget=int(constants + 20 * KIB), io_place=io, prefetch_constants=True)
        )


def test_random_graphs_touch_what_their_reports_say() -> None:
    for seed in range(40):
        graph = random_graphs.several(seed)
        for options in (CompileOptions(check=True), CompileOptions(io_place="caller", prefetch_constants=True)):
            try:
                assert_measured(graph, options)
            except BudgetError:
                continue
