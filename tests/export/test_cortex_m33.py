# SPDX-License-Identifier: BSD-3-Clause
"""A bundle for a Cortex-M33 builds as it is, runs in QEMU and checks itself."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from openneutron import targets
from openneutron.cli import main
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.features.export.bundle import export_bundle
from openneutron.isa.microcode import facts_of
from scripts.published_networks import cifarnet
from tests.export.bundles import built, compiled_tflite, execute, run
from tests.support.litert_files import graph_file
from tests.support.tools import required

KWS_TENSORS = 16000
"""Bytes of keyword spotting's arena without copies, docs/explanation/compiler.md."""


def sections(said: str) -> dict[str, int]:
    """The table that ends a build: words and bytes."""
    table = said.partition("Memory of the example, bytes\n")[2]
    return {words: int(size) for size, words in re.findall(r"^ +(\d+)  +(\S.*)$", table, re.MULTILINE)}


def commands(root: Path) -> list[str]:
    """The three commands that docs/deploy.md names first, with a model in MODEL's place."""
    return (root / "docs" / "deploy.md").read_text().split("```\n")[1].replace("MODEL", "cifarnet").splitlines()


def test_the_commands_of_the_deployment_page(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CifarNet from PyTorch to a bundle that builds, runs and passes; with a spoiled expectation it fails."""
    required("arm-none-eabi-gcc")
    required("qemu-system-arm")
    monkeypatch.chdir(tmp_path)
    compiling, exporting, building = commands(root)
    assert main([*shlex.split(compiling)[1:], "--quiet"]) == 0
    capsys.readouterr()
    assert main([*shlex.split(exporting)[1:], "--json"]) == 0
    bundle = json.loads(capsys.readouterr().out)
    done = subprocess.run(building, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    memory = sections(done.stdout + done.stderr)
    assert memory["microcode and weights"] == bundle["memory"]["microcode"] + bundle["memory"]["weights"]
    assert memory["arena"] == bundle["memory"]["arena"]
    assert "warning" not in done.stdout + done.stderr
    parts = ("code, constants, startup", "microcode and weights", "golden inputs and outputs (the example's alone)")
    assert memory["flash"] == sum(memory[part] for part in parts)
    folder = tmp_path / "bundle"
    linked = set(
        re.findall(
            r"^ \.text(?:\.unlikely)?\.(\w+_s8)_run$", (folder / "build" / "example.map").read_text(), re.MULTILINE
        )
    )
    assert linked == {kernel.partition(":")[0] for kernel in bundle["kernels"]}

    passed = run(folder)
    said = passed.stdout + passed.stderr
    (stack,) = re.findall(r"stack used: (\d+) bytes", said)
    assert int(stack) < 4096 + 512  # the driver's bound, and what main and openneutron_run add
    assert passed.returncode == 0
    assert said == f"model\noutput0: 10 of 10 bytes as expected\nstack used: {stack} bytes\npassed\n"
    assert said in done.stdout + done.stderr

    golden = folder / "example" / "golden.c"
    head, tail = golden.read_text().split("_outputs0[4] = {\n    0x")
    golden.write_text(f"{head}_outputs0[4] = {{\n    0x{int(tail[:8], 16) ^ 1 << 24:08X}{tail[8:]}")
    options = ("ARENA_SECTION=.bss.npu", "PORTABLE_KERNELS=ON", "TIMEOUT_SECONDS=60")
    elsewhere = sections(built(folder, *(f"-DOPENNEUTRON_{option}" for option in options)))
    assert elsewhere["arena"] == 0
    assert elsewhere["other data"] > bundle["memory"]["arena"]
    assert elsewhere["code, constants, startup"] < memory["code, constants, startup"]
    failed = run(folder)
    assert failed.returncode == 1
    assert "output0: 9 of 10 bytes as expected\n" in failed.stdout + failed.stderr


def test_constants_are_fetched_from_flash(shared_models: Path, tmp_path: Path) -> None:
    model = tmp_path / "kws.tflite"
    model.write_bytes(compiled_tflite(shared_models / "mlperf_tiny_kws_int8.tflite", prefetch_constants=True))
    # Compiler and linker divide some options at commas, and a shell would run the command in parentheses.
    folder = tmp_path / "a bundle, $(touch ran) 100%"
    bundle = export_bundle(model, folder)
    assert bundle.memory["arena"] > KWS_TENSORS
    memory = sections(built(folder, "-DOPENNEUTRON_WERROR=ON"))
    assert memory["arena"] == bundle.memory["arena"]
    done = run(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not [*tmp_path.rglob("ran")]


def test_a_profiled_example_prints_what_the_command_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """QEMU counts instructions, the same in each run."""
    required("arm-none-eabi-gcc")
    required("qemu-system-arm")
    graph = cifarnet()
    program = compile_graph(graph, targets.get("imxrt700"), CompileOptions(profile=True)).program
    model, csv = tmp_path / "cifarnet.tflite", tmp_path / "run.csv"
    model.write_bytes(graph_file(graph, program))
    export_bundle(model, tmp_path / "bundle")
    built(tmp_path / "bundle", "-DOPENNEUTRON_WERROR=ON")
    said = [execute(tmp_path / "bundle" / "build" / "example.elf", "-icount", "shift=0") for _ in range(2)]
    assert said[0].returncode == 0 and said[0].stderr == said[1].stderr
    csv.write_text(said[0].stdout + said[0].stderr)
    assert main(["profile", "--from", str(csv), str(model), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["unit_of_time"] == "instructions"
    times = {row["name"]: row["time"] for row in data["rows"]}
    assert list(times) == [item.layer for item in facts_of(program)]
    assert max(times, key=lambda layer: times[layer]) == "conv_2d_2"
