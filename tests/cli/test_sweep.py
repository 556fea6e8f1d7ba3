# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron sweep``."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from openneutron import litert
from openneutron.device.mixed import CompiledFile
from scripts.published_networks import cifarnet
from tests.cli.conftest import Command
from tests.support.chip_files import changed_chip

BUDGETS = ("--sram-budget", "4,12..60..16")


@pytest.fixture
def model(folder: Path) -> Path:
    """The current folder, with cifarnet.tflite and labelled samples for it."""
    (folder / "cifarnet.tflite").write_bytes(litert.write(cifarnet()))
    images = np.random.default_rng(3).normal(0, 1, (6, 32, 32, 3)).astype(np.float32)
    np.savez(folder / "labelled.npz", input0=images, labels=np.arange(6))
    return folder


def test_each_point_is_what_a_compile_gives(openneutron: Command, model: Path) -> None:
    said = json.loads(openneutron("sweep", "cifarnet.tflite", *BUDGETS, "--plot", "sweep.svg", "--json").out)
    budgets = [point["options"]["sram_budget"] // 1024 for point in said["points"]]
    assert budgets == [60, 44, 28, 12, 4]
    assert [point["state"] for point in said["points"]] == ["done", "done", "done", "done", "infeasible"]
    for budget, point in zip(budgets[:4], said["points"], strict=False):
        made = json.loads(openneutron("compile", "cifarnet.tflite", "--json", "--sram-budget", str(budget)).out)
        assert (point["modelled_cycles"], point["file_bytes"]) == (made["modelled_cycles"], made["file_bytes"])
        assert point["sram_bytes"] <= budget * 1024
    least = said["points"][-1]["least_sram_bytes"]
    refused = openneutron("compile", "cifarnet.tflite", "--sram-budget", "4")
    assert refused.err == f"error: {said['points'][-1]['error']}\n"
    assert 4 * 1024 < least <= 12 * 1024
    drawing = ElementTree.fromstring((model / "sweep.svg").read_text())
    drawn = {(point["sram_bytes"], point["modelled_ms"]) for point in said["points"][:4]}
    marks = [
        path for path in drawing.iter("{http://www.w3.org/2000/svg}path") if path.get("aria-roledescription") == "point"
    ]
    assert len(marks) == len(drawn)


def test_nothing_is_done_twice(openneutron: Command, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = ("--data", "labelled.npz", "--workers", "1")
    first = json.loads(openneutron("sweep", "cifarnet.tflite", *data, "--sram-budget", "44,60", "--json").out)
    assert all(set(point["metrics"]) == {"int8", "npu"} for point in first["points"])
    with monkeypatch.context() as patch:
        patch.setattr("openneutron.compile", None)
        patch.setattr("openneutron.features.sweep.command.evaluated", None)
        again = json.loads(openneutron("sweep", "cifarnet.tflite", *data, "--sram-budget", "44,60", "--json").out)
    assert again == first
    with monkeypatch.context() as patch:  # the outputs are those of the other budgets
        patch.setattr("openneutron.features.sweep.command.evaluated", None)
        more = json.loads(openneutron("sweep", "cifarnet.tflite", *data, "--sram-budget", "28..60..16", "--json").out)
    assert more["points"][:2] == first["points"]
    assert more["points"][2]["metrics"] == first["points"][0]["metrics"]


def test_an_interrupted_sweep_goes_on_where_it_was(
    openneutron: Command, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    whole = CompiledFile.recompiled

    def interrupted(self: CompiledFile, options: object) -> CompiledFile:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(self, options)  # type: ignore[arg-type]

    monkeypatch.setattr(CompiledFile, "recompiled", interrupted)
    ended = openneutron("sweep", "cifarnet.tflite", *BUDGETS)
    assert (ended.code, ended.err) == (130, "interrupted\n")
    lines = ended.out.splitlines()
    assert lines[0] == "cifarnet.tflite: 2 of 5 points until the interrupt, in cifarnet_neutron_sweep.sqlite"
    assert [line.split()[0] for line in lines[2:]] == ["60", "44"]
    said = json.loads(openneutron("sweep", "cifarnet.tflite", *BUDGETS, "--json").out)
    assert [point["state"] for point in said["points"]] == ["done"] * 4 + ["infeasible"]
    # 60 by a compile, 44 by a recompile, 28 interrupted; then 28 by a compile, 12 and 4 by recompiles.
    assert len(calls) == 4


def test_the_table_says_what_varies(openneutron: Command, model: Path) -> None:
    lines = openneutron("sweep", "cifarnet.tflite", *BUDGETS, "--prefetch-constants", "no").out.splitlines()
    assert lines[0] == "cifarnet.tflite: 5 points, in cifarnet_neutron_sweep.sqlite"
    assert lines[1].split() == ["--sram-budget", "SRAM", "with", "weights", "time", "file"]
    assert [line.split()[0] for line in lines[2:]] == ["60", "44", "28", "12", "4"]
    assert "infeasible" in lines[-1] and lines[-1].endswith("KiB are enough")


def test_a_budget_above_a_chips_memory_is_a_row(openneutron: Command, model: Path) -> None:
    ended = openneutron("sweep", "cifarnet.tflite", "--target", "imxrt700,mcxn94x", "--sram-budget", "44,500")
    rows = {tuple(line.split()[:2]): line for line in ended.out.splitlines()[2:]}
    assert ended.code == 0 and len(rows) == 4
    assert rows["mcxn94x", "500"].endswith(
        "sram_budget: it is 500 KiB; mcxn94x has 416 KiB of SRAM. Give at most that."
    )
    assert sum(bool(re.search(r" KiB +[\d.,]+ [mu]s ", line)) for line in rows.values()) == 3


def test_a_changed_chip_is_another_point(openneutron: Command, model: Path) -> None:
    arguments = ("sweep", "cifarnet.tflite", "--target", str(changed_chip(model, {"clock": 324})), "--json")
    (before,) = json.loads(openneutron(*arguments).out)["points"]
    changed_chip(model, {"clock": 162})
    (after,) = json.loads(openneutron(*arguments).out)["points"]
    assert after["modelled_ms"] == 2 * before["modelled_ms"]


def test_bad_input_is_one_clear_error(refused: Callable[..., str], openneutron: Command, model: Path) -> None:
    expected = {
        ("--plot", "x.pdf"): "--plot: 'x.pdf' is no .png or .svg; nothing else is drawn.",
        ("--sram-budget", "9..3"): "--sram-budget: '9..3' ends below its beginning. Write the smaller size first.",
        ("--observer", "minmax"): (
            "--observer: it is for PyTorch models; 'cifarnet.tflite' is a .tflite. Leave it out."
        ),
        ("--target", "imxrt7000"): (
            "Target `imxrt7000` is not a valid target. Must be one of `['imx943', 'imx95', 'imx952', 'imxrt700', 'mcxn54x', 'mcxn94x', 'cortex-a55', 'cortex-m33', 'cortex-m4', 'cortex-m55', 'cortex-m7', 'cortex-m85']`, or the path of a .toml file. Did you mean 'imxrt700'?"
        ),
    }
    for arguments, message in expected.items():
        assert refused("sweep", "cifarnet.tflite", *arguments) == message
    assert openneutron("sweep", "cifarnet.tflite", "--sram-budget", "60", "--table", "t.sqlite").code == 0
    words = refused("sweep", "mixed.tflite", "--sram-budget", "60", "--table", "t.sqlite")
    assert words == (
        "table: 't.sqlite' is the table of another sweep: its model is 'cifarnet.tflite', here it is 'mixed.tflite'. Choose "
        "another file with --table."
    )
