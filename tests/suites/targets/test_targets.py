# SPDX-License-Identifier: BSD-3-Clause
"""Small networks on all targets; ``make soak`` runs all networks."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from openneutron import targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.ir import Graph, Node, State
from openneutron.isa import decode
from scripts.published_networks import Chain, cifarnet
from tests.suites.targets import __main__ as command
from tests.suites.targets import networks, reference
from tests.suites.targets.measured import Case, measured, merged
from tests.suites.targets.page import cell, page
from tests.support import oracle, stateful_graphs


def test_a_network_on_all_targets_and_a_second_run_that_compiles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = networks.PUBLISHED["cifarnet"]()
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "published-cifarnet.network").write_bytes(networks.Network((graph,)).to_bytes())
    results = command.run("published/cifarnet", tmp_path, targets.names(), {})
    assert sorted(results) == targets.names()
    assert all("fault" not in each and each["half_milliseconds"] > 0 for each in results.values())
    command._save(tmp_path, "published/cifarnet", results)
    monkeypatch.setattr(command, "_ran", None)
    known = command._read(tmp_path)["published/cifarnet"]
    assert command.run("published/cifarnet", tmp_path, targets.names(), known) == results
    text = page({"published/cifarnet": results}, command.columns(), ["suite/bert"])
    assert text.endswith("\nNot measured yet: suite/bert.\n")
    assert all(each["revision"] == command.revision() for each in results.values())
    assert f"| {cell(results['imxrt700'])} | {cell(results['mcxn54x'])} |" in text


def test_networks_run_at_the_same_time_and_are_saved_as_they_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second_has_ended = threading.Event()

    def ran(name: str, folder: Path, chosen: Sequence[str], known: command.Results) -> command.Results:
        if name == "first":
            assert second_has_ended.wait(60), "the second network waits for the first"
        return known | {target: {"network": name, "target": target} for target in chosen}

    monkeypatch.setattr(command, "run", ran)
    known = {"first": {"mcxn94x": {"network": "first", "target": "mcxn94x"}}}
    ended = []
    for name, found in command.run_all(["first", "second"], tmp_path, ["imx95"], known, jobs=2):
        assert command._read(tmp_path)[name] == found
        ended.append((name, sorted(found)))
        second_has_ended.set()
    assert ended == [("second", ["imx95"]), ("first", ["imx95", "mcxn94x"])]


def test_targets_of_equal_numbers_have_equal_programs() -> None:
    same = command.twins(targets.names())
    pairs = [(one, other) for one, other in same.items() if one != other]
    assert pairs == [("imx952", "imx95"), ("mcxn94x", "mcxn54x")]
    options = CompileOptions(sram_budget=24 * 1024)
    for one, other in pairs:
        first, second = (compile_graph(cifarnet(), targets.get(name), options).program for name in (one, other))
        codes = (dataclasses.replace(decode(program), target=0) for program in (first, second))
        assert next(codes) == next(codes)
        assert first.weights == second.weights


def test_a_wrong_byte_is_a_fault() -> None:
    case = Case.of(Chain("small", (1, 8, 8, 8)).conv(8, 3).graph())
    case.wanted[0][0] = case.wanted[0][0].copy()
    case.wanted[0][0].reshape(-1)[3] ^= 1
    figures = measured(case, targets.get("mcxn94x"))
    assert figures["fault"] == "1 bytes of the outputs differ at 425984 bytes"


def test_a_network_that_does_not_fit_has_the_least_budget_and_its_bound() -> None:
    case = Case.of(Chain("small", (1, 32, 32, 8)).conv(8, 3).graph())
    figures = measured(case, targets.get("mcxn94x").with_sram(4))
    assert 4 * 1024 < figures["bound_bytes"] <= figures["least_bytes"]
    assert "fault" not in figures and cell(figures).startswith("needs ")


def test_int16_on_a_target_without_it_is_no_fault() -> None:
    x, y = oracle.wide_activation("x", (1, 4, 4, 8)), oracle.wide_activation("y", (1, 4, 4, 8))
    graph = oracle.graph_of([x], [Node("add", ("x", "x"), ("y",), {"activation": "NONE"})], [y])
    other = targets.get("imx943")
    narrow_types = dataclasses.replace(other.npu.data_types, value=("int8",))
    narrow = dataclasses.replace(other, npu=dataclasses.replace(other.npu, data_types=narrow_types))
    assert measured(Case.of(graph), narrow) == {"unsupported": "int16"}
    assert "fault" not in measured(Case.of(graph), targets.get("mcxn94x"))
    assert "fault" not in measured(Case.of(graph), targets.get("imx943"))


def test_the_reference_keeps_states_from_run_to_run() -> None:
    graph = stateful_graphs.streaming_convolution()
    case = Case.of(graph)
    assert len(case.inputs) == reference.RUNS
    for name in ("imxrt700", "imx95"):
        assert "fault" not in measured(case, targets.get(name))
    (again,) = reference.outputs_of(graph, case.inputs[1:2])
    assert not np.array_equal(again[0], case.wanted[1][0])


def test_stored_networks_are_the_same() -> None:
    graph = stateful_graphs.streaming_convolution()
    (read,) = networks.Network.from_bytes(networks.Network((graph,), 2).to_bytes()).graphs
    assert str(read) == str(graph)
    assert isinstance(read, Graph) and isinstance(read.states[0], State)


def test_a_program_that_is_larger_than_the_flash_says_so() -> None:
    figures = {"milliseconds": 200.0, "sram_bytes": 2048, "stored_kib": 3584.0}
    assert cell({"target": "mcxn94x", **figures}) == "200 ms, 2 KiB, 3.5 MiB for flash"
    assert cell({"target": "imxrt700", **figures}) == "200 ms, 2 KiB"


def test_the_figures_of_partitions_are_merged() -> None:
    parts = [{"sram_bytes": 3, "milliseconds": 1.0}, {"sram_bytes": 5, "milliseconds": 2.0, "fault": "a"}]
    assert merged(parts) == {"partitions": 2, "sram_bytes": 5, "milliseconds": 3.0, "fault": "a"}
