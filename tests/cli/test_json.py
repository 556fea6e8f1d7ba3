# SPDX-License-Identifier: BSD-3-Clause
"""--json of every command follows docs/reference/json.schema.json."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import openneutron as package
from openneutron import litert
from openneutron.cli import app
from openneutron.isa.kernel_selection import KernelSelection
from scripts.json_schema import COMMANDS, schema
from scripts.published_networks import cifarnet
from tests.cli.conftest import Command
from tests.support.json_schema import violations


@pytest.fixture
def compiled(openneutron: Command, folder: Path) -> Path:
    """The current folder, with files that the commands read."""
    openneutron("compile", "mixed.tflite", "-q")
    (folder / "whole.tflite").write_bytes(litert.write(cifarnet()))
    openneutron("compile", "whole.tflite", "-q")
    openneutron("compile", "whole.tflite", "--profile", "-o", "profiled.tflite", "-q")
    graph = cifarnet()
    shape = graph[graph.inputs[0]].shape
    samples = np.random.default_rng(0).integers(-128, 128, (3, *shape)).astype(np.int8)
    np.savez(folder / "data.npz", input0=samples, labels=np.array([0, 1, 2]))
    (folder / "net.c").write_text(
        KernelSelection(f"OpenNeutron {package.__version__}", ("softmax_s8", "compare_s8:less")).text()
    )
    return folder


ARGUMENTS = {
    "compile": ["mixed.tflite"],
    "run": ["mixed_neutron.tflite", "--random", "1"],
    "explain": ["mixed.tflite"],
    "profile": ["profiled.tflite", "--random", "1"],
    "evaluate": ["whole.tflite", "--data", "data.npz", "--workers", "1"],
    "sweep": ["whole.tflite", "--sram-budget", "1,default", "--data", "data.npz", "--workers", "1"],
    "export": ["whole_neutron.tflite", "--to", "firmware"],
    "report": ["mixed.tflite"],
    "pareto": ["mixed.tflite"],
    "disasm": ["mixed_neutron.tflite"],
    "kernels merge": ["net.c", "-o", "all.c"],
    "kernels list": ["mixed_neutron.tflite"],
    "targets": [],
    "doctor": [],
}


ELSEWHERE = {"accuracy", "board make", "board read", "demo", "generate", "quantize"}
"""Commands with tests of their own: those that compile PyTorch models, and those of tests/board and tests/language."""


def test_every_command_is_tried() -> None:
    assert ARGUMENTS.keys() | ELSEWHERE == COMMANDS.keys()
    assert {name.split()[0] for name in COMMANDS} == app.COMMANDS.keys()


@pytest.mark.parametrize("command", [name for name in ARGUMENTS if name != "doctor"])
def test_the_output_follows_the_schema(openneutron: Command, compiled: Path, command: str) -> None:
    ended = openneutron(*command.split(), *ARGUMENTS[command], "--json")
    assert ended.code == 0, ended.err
    data = json.loads(ended.out)
    assert (data["schema_version"], data["command"]) == (2, command)
    assert list(violations(data, schema())) == []


def test_the_output_for_several_models_follows_the_schema(openneutron: Command, compiled: Path) -> None:
    ended = openneutron("compile", "mixed.tflite", "absent.tflite", "-o", "out", "--json")
    assert ended.code == 2
    data = json.loads(ended.out)
    assert list(violations(data, schema())) == []
    assert data["models"][1] == {"model": "absent.tflite", "error": "'absent.tflite' does not exist."}


def test_the_output_for_models_with_one_arena_follows_the_schema(openneutron: Command, compiled: Path) -> None:
    data = json.loads(
        openneutron("compile", "mixed.tflite", "whole.tflite", "--share-arena", "-o", "out", "--json").out
    )
    assert list(violations(data, schema())) == []
    memory = data["shared_arena"]
    assert memory["sram_bytes"] == max(model["peak_sram_bytes"] for model in data["models"])


def test_the_output_for_two_reports_follows_the_schema(openneutron: Command, compiled: Path) -> None:
    data = json.loads(openneutron("report", "mixed.tflite", "whole.tflite", "--no-pareto", "--json").out)
    assert (data["a"]["model"], data["b"]["model"]) == ("mixed.tflite", "whole.tflite")
    assert list(violations(data, schema())) == []


def test_the_findings_of_doctor_follow_the_schema(openneutron: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from openneutron.features.doctor import command as doctor

    monkeypatch.setattr(doctor, "all_checks", lambda _progress: [doctor.platform_check()])
    data = json.loads(openneutron("doctor", "--json").out)
    assert list(violations(data, schema())) == []


def test_another_output_violates_the_schema() -> None:
    wrong = {"schema_version": 2, "command": "disasm", "file": 3, "programs": [], "more": 0}
    (found,) = violations(wrong, schema())
    assert "$.file: 3 is no string" in found and "$: 'more' is unknown" in found
