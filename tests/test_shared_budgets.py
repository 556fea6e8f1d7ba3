# SPDX-License-Identifier: BSD-3-Clause
"""Six networks within budgets: LiteRT's bytes, the least memory, and never slower for more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from openneutron import litert, targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.driver import compile_prepared, prepared
from openneutron.errors import BudgetError
from openneutron.ir import Graph
from scripts.published_networks import cifarnet
from tests.support import oracle

LEAST_KIB = {
    "mobilenet_v2_224_random_int8": 158.0,
    "mlperf_tiny_vww96_int8": 27.5,
    "mlperf_tiny_resnet8_int8": 14.5,
    "mlperf_tiny_kws_int8": 8.5,
    "mlperf_tiny_ad01_int8": 0.75,
}
"""The limits of the smallest budgets, input and output included."""

BUDGETS = 12
OF_MCXN = 4


@pytest.mark.parametrize("model", LEAST_KIB)
def test_budgets(model: str, shared_models: Path) -> None:
    path = shared_models / f"{model}.tflite"
    check(litert.read(path).graph, path.read_bytes(), LEAST_KIB[model])


def test_budgets_of_cifarnet() -> None:
    graph = cifarnet()
    check(graph, litert.write(graph), 6.25)


@pytest.mark.parametrize("model", [name for name in LEAST_KIB if not name.startswith("mobilenet_v2")])
def test_budgets_of_mcxn94x(model: str, shared_models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least memory is the same on all chips; the pace of the operators in between is not."""
    monkeypatch.setattr(oracle, "TARGET", targets.get("mcxn94x"))
    path = shared_models / f"{model}.tflite"
    check(litert.read(path).graph, path.read_bytes(), LEAST_KIB[model], OF_MCXN)


def test_mobilenet_v2_in_the_memory_of_mcxn94x(shared_models: Path) -> None:
    """Whole tensors of 1,470 KiB take 416 KiB without a budget, and LiteRT's bytes come out."""
    chip = targets.get("mcxn94x")
    path = shared_models / "mobilenet_v2_224_random_int8.tflite"
    graph = litert.read(path).graph
    compiled = compile_graph(graph, chip)
    assert compiled.report.sram_bytes <= chip.sram.value * 1024
    inputs = oracle.random_inputs(graph, 4)
    (got,), (want,) = oracle.simulated_outputs(compiled, inputs), oracle.reference_outputs(path.read_bytes(), inputs)
    np.testing.assert_array_equal(got, want)


def check(graph: Graph, file: bytes, least_kib: float, count: int = BUDGETS) -> None:
    """At ``count`` budgets from the least to whole tensors; bytes at three of them, each of a search of its own, too.

    On chips with tiles, the memory holds constants too, and the next tile beside the one in use: at most half of the unlimited bytes is
    asked. The search of more than 16 calls in tiles is heuristic (docs/explanation/compiler.md).
    """
    in_tiles = oracle.TARGET.moves_tiles
    slack = 1.01 if in_tiles else 1
    kept = prepared(graph, kept=True)
    unlimited = compile_prepared(kept, oracle.TARGET).report
    with pytest.raises(BudgetError) as caught:
        compile_prepared(kept, oracle.TARGET, CompileOptions(sram_budget=1))
    least = caught.value.least_bytes
    assert least <= (unlimited.sram_bytes / 2 if in_tiles else least_kib * 1024)
    budgets = np.linspace(least, unlimited.sram_bytes, count).astype(int).tolist()
    options = {budget: CompileOptions(sram_budget=budget) for budget in budgets}
    compiled = {budget: compile_prepared(kept, oracle.TARGET, options[budget]) for budget in budgets}
    assert all(made.report.sram_bytes <= budget for budget, made in compiled.items())
    cycles = [compiled[budget].report.cycles for budget in budgets]
    assert all(after <= slack * min(cycles[:place]) for place, after in enumerate(cycles) if place)
    assert unlimited.cycles / slack <= cycles[-1] <= unlimited.cycles * slack
    inputs = oracle.random_inputs(graph, 3)
    want = oracle.reference_outputs(file, inputs)
    for budget in (budgets[0], budgets[count // 4], budgets[count // 2]):
        assert compile_graph(graph, oracle.TARGET, options[budget]).program == compiled[budget].program
        for got, expected in zip(oracle.simulated_outputs(compiled[budget], inputs), want, strict=True):
            np.testing.assert_array_equal(got, expected, f"{graph.name} at {budget} bytes")
