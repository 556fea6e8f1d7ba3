# SPDX-License-Identifier: BSD-3-Clause
"""A chip with other pipelines, multipliers and SRAM is one file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import openneutron
from openneutron import litert, targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.errors import BudgetError
from scripts.published_networks import Chain, cifarnet
from tests.support import oracle, random_graphs
from tests.support.chip_files import changed_chip
from tests.support.made_networks import NETWORKS


@pytest.fixture
def wide(tmp_path: Path) -> targets.Target:
    return targets.get(str(changed_chip(tmp_path, {"pipelines": 16, "macs": 4, "size": 24})))


@pytest.mark.parametrize("name", ["wide", "mcxn94x"])
def test_programs_compute_the_same(name: str, wide: targets.Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "TARGET", wide if name == "wide" else targets.get(name))
    for seed in range(12):
        oracle.assert_bit_exact(random_graphs.several(seed), (seed,))
    for op in ("conv_2d", "depthwise_conv_2d", "fully_connected"):
        oracle.assert_bit_exact(random_graphs.single(op, 1), (1,), CompileOptions(prefetch_constants=True))


@pytest.mark.parametrize("seed", range(10))
def test_random_graphs_on_random_targets(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = random.Random(seed)
    values = {
        "pipelines": generator.randint(2, 32),
        "macs": generator.randint(2, 32),
        "size": generator.randint(24, 512),
    }
    values |= {"issue_cycles": generator.randint(0, 60_000), "fill_cycles": generator.uniform(0, 3)}
    monkeypatch.setattr(oracle, "TARGET", targets.get(str(changed_chip(tmp_path, values))))
    oracle.assert_bit_exact(random_graphs.several(100 + seed), (seed,))


@pytest.mark.parametrize("name", [name for name in NETWORKS if name.startswith("mlperf_tiny")])
def test_networks_on_another_chip(name: str, shared_models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole tensors, and the least budget with constants copied from flash, of the MCX N."""
    monkeypatch.setattr(oracle, "TARGET", targets.get("mcxn94x"))
    graph = litert.read(shared_models / f"{name}.tflite").graph
    oracle.assert_bit_exact(graph, (0,))
    with pytest.raises(BudgetError) as caught:
        compile_graph(graph, oracle.TARGET, CompileOptions(sram_budget=1, prefetch_constants=True))
    least = CompileOptions(sram_budget=caught.value.least_bytes, prefetch_constants=True)
    oracle.assert_bit_exact(graph, (1,), least)


@pytest.mark.imxrt700
def test_cycles_follow_its_pipelines_and_the_budget_its_memory(wide: targets.Target) -> None:
    graph = Chain("one", (1, 8, 8, 16)).conv(16, 3).graph()
    ours, others = (compile_graph(graph, target).report.operators[0] for target in (oracle.TARGET, wide))
    issue = [int(target.costs.issue_cycles.value) for target in (oracle.TARGET, wide)]
    # As many multipliers: twice the steps through the inputs, half of them through the outputs. At 9 taps a pipeline fills in 8 cycles.
    assert ours.cycles - issue[0] == 64 * 2 * (9 * 2 + 8)
    assert others.cycles - issue[1] == 64 * 1 * (9 * 4 + 8)
    few = Chain("few", (1, 8, 8, 4)).conv(16, 1).graph()
    ours, others = (compile_graph(few, target).report.operators[0] for target in (oracle.TARGET, wide))
    assert ours.cycles - issue[0] == 2 * (others.cycles - issue[1])
    assert compile_graph(cifarnet(), wide).report.sram_bytes <= 24 * 1024
    with pytest.raises(BudgetError):
        compile_graph(Chain("large", (1, 64, 64, 16)).conv(16, 3).graph(), wide)


def test_a_users_file_is_a_target(tmp_path: Path) -> None:
    """The path stands where a name does: the compiled file, its summary and its cycles are those of the chip."""
    chip = changed_chip(tmp_path, {"pipelines": 16, "macs": 4})
    model = tmp_path / "net.tflite"
    model.write_bytes(litert.write(cifarnet()))
    compiled = openneutron.compile(model, options=CompileOptions(target=str(chip)))
    assert compiled.report.target.macs_per_cycle == 64
    assert compiled.report.to_dict()["target"] == "changed"
