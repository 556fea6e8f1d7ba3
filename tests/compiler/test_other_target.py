# SPDX-License-Identifier: BSD-3-Clause
"""A chip with other pipelines, multipliers and SRAM is one file."""

from __future__ import annotations

from pathlib import Path

import pytest

from openneutron import targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.errors import BudgetError
from scripts.published_networks import Chain, cifarnet
from tests.support import oracle, random_graphs

FILE = """
from dataclasses import replace

from openneutron.targets.imxrt700 import IMXRT700
from openneutron.targets.target import Number

TARGETS = (
    replace(IMXRT700, name="wide", title="Wide", pipelines=16, macs=4, sram=Number(24, "KiB", "assumed: a test")),
)
"""


@pytest.fixture
def wide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> targets.Target:
    (tmp_path / "wide.py").write_text(FILE)
    monkeypatch.setattr(targets, "__path__", [*targets.__path__, str(tmp_path)])
    monkeypatch.setattr(targets, "KNOWN", targets.all_targets())
    assert targets.names() == ["imxrt700", "wide"]
    return targets.get("wide")


def test_programs_compute_the_same(wide: targets.Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "TARGET", wide)
    for seed in range(12):
        oracle.assert_bit_exact(random_graphs.several(seed), (seed,))
    for op in ("conv_2d", "depthwise_conv_2d", "fully_connected"):
        oracle.assert_bit_exact(random_graphs.single(op, 1), (1,), CompileOptions(prefetch_constants=True))


def test_cycles_follow_its_pipelines_and_the_budget_its_memory(wide: targets.Target) -> None:
    graph = Chain("one", (1, 8, 8, 16)).conv(16, 3).graph()
    ours, others = (compile_graph(graph, target).report.operators[0] for target in (oracle.TARGET, wide))
    issue = [int(target.costs.issue_cycles.value) for target in (oracle.TARGET, wide) if target.costs]
    # As many multipliers: twice the steps through the inputs, half of them through the outputs.
    assert ours.cycles - issue[0] == others.cycles - issue[1] == 64 * 9 * 16 * 16 // 64
    few = Chain("few", (1, 8, 8, 4)).conv(16, 1).graph()
    ours, others = (compile_graph(few, target).report.operators[0] for target in (oracle.TARGET, wide))
    assert ours.cycles - issue[0] == 2 * (others.cycles - issue[1])
    assert compile_graph(cifarnet(), wide).report.sram_bytes <= 24 * 1024
    with pytest.raises(BudgetError):
        compile_graph(Chain("large", (1, 64, 64, 16)).conv(16, 3).graph(), wide)
