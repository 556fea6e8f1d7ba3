# SPDX-License-Identifier: BSD-3-Clause
"""Files of NXP's converter, inspected: explain, report and disasm."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path

import pytest

import openneutron as package
from openneutron.features.report.inspection import inspected
from openneutron.isa import Program
from openneutron.litert import read
from openneutron.litert.neutron_graph import MAGIC, NeutronNode, splice
from tests.cli.conftest import Command
from tests.support.litert_files import mixed_file


def microcode(version: int, inputs: int = 1, outputs: int = 1) -> bytes:
    """The published words of a header, with 4 bytes of weights, in a version of the form. All else is invented."""
    words = [MAGIC, 0x03010002, 0, 0, 0, 0, 80, 4, 0, 1024, 0, 0, 0, 0, 0, 7, 7, 7, 7, 7]
    if version:
        words[10], words[11], words[13], words[14] = 0x80000010, 32, inputs, outputs
    else:
        words[11], words[12] = inputs, outputs
    return struct.pack("<20I", *words)


def file_of(path: Path, version: int, header: bytes | None = None) -> Path:
    """The file of ``mixed_file`` with NeutronGraphs of another compiler around the SCATTER_ND, and an archive at its end."""
    plain = path.with_name("plain.tflite")
    plain.write_bytes(mixed_file())
    parts = package.compile(plain).compiled
    work = (1024, 16, 32) if version else (1024,)
    steps: list[int | NeutronNode] = []
    for step in parts.partitioning.steps:
        index = getattr(step, "index", None)
        if index is None:
            steps.append(step.node)
            continue
        graph = parts.partitioning.partitions[index].graph
        counts = len(graph.inputs), len(graph.outputs)
        program = Program(header or microcode(version, *counts), b"\1\2\3\4", b"")
        steps.append(NeutronNode(f"npu_{index}", graph.inputs, graph.outputs, program, work))
    path.write_bytes(splice(read(mixed_file()), steps))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(zipfile.ZipInfo("metadata.json"), b"{}")
    return path


@pytest.mark.parametrize(
    ("version", "read_by"), [(0, "the driver of SDKs before 2.2.1"), (1, "the driver of SDK 2.2.1 and later")]
)
def test_the_contents_of_a_file(version: int, read_by: str, tmp_path: Path) -> None:
    found = inspected(file_of(tmp_path / "net.tflite", version))
    assert found is not None
    assert [(row.version, row.read_by, row.fault) for row in found.graphs] == [(version, read_by, "")] * 2
    first = found.graphs[0]
    assert (first.inputs, first.outputs) == (("q",), ("p", "c"))
    assert (first.microcode_bytes, first.weights_bytes, first.kernels_bytes) == (80, 4, 0)
    assert first.work_bytes == dict(
        zip(("scratch", "profile", "debug"), (1024, 16, 32)[: 3 if version else 1], strict=False)
    )
    assert dict(found.on_cpu) == {"QUANTIZE": 1, "SCATTER_ND": 1, "DEQUANTIZE": 1, "LOGISTIC": 1}
    assert found.appended == ("metadata.json",)


def test_microcode_that_no_driver_reads(tmp_path: Path) -> None:
    found = inspected(file_of(tmp_path / "net.tflite", 1, b"nMCe" + microcode(1)[4:]))
    assert found is not None
    assert found.graphs[0].fault == "it begins with b'nMCe', and microcode with b'nMCd'"
    found = inspected(file_of(tmp_path / "net.tflite", 1, microcode(1)[:28] + b"\xff\0\0\0" + microcode(1)[32:]))
    assert found is not None
    assert found.graphs[0].fault == "its header states 255 bytes of weights; there are 4"


def test_files_of_this_project_are_not_foreign(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(mixed_file())
    assert inspected(path) is None
    package.compile(path).save(path)
    assert inspected(path) is None


def test_the_commands(openneutron: Command, folder: Path) -> None:
    file_of(folder / "nxp.tflite", 1)
    for command in ("explain", "report"):
        ended = openneutron(command, "nxp.tflite")
        assert ended.code == 0, ended.err
        assert "2 NeutronGraphs, made by another compiler; their costs are not known here" in ended.out
        assert "4 operators: 1 QUANTIZE, 1 SCATTER_ND, 1 DEQUANTIZE, 1 LOGISTIC" in ended.out
        assert "the driver of SDK 2.2.1 and later" in ended.out
        assert json.loads(openneutron(command, "nxp.tflite", "--json").out)["appended"] == ["metadata.json"]
    assert not (folder / "report.html").exists()
    ended = openneutron("report", "nxp.tflite", "-o", "page.html")
    assert ended.err == (
        "error: --output: another compiler made 'nxp.tflite', and the costs that a page shows are not known here. Leave it out.\n"
    )
    ended = openneutron("disasm", "nxp.tflite")
    assert "word  6  0x00000050  microcode bytes 80\n" in ended.out
    assert "word 10  0x80000010  profile bytes 16\n" in ended.out
    assert "word 14  0x00000002  outputs 2\n" in ended.out
