# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron.load`` opens compiled files and refuses all others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import openneutron
from openneutron.errors import InvalidModelError, InvalidProgramError
from openneutron.options import CompileOptions, DelegationOptions
from tests.support.litert_files import inputs_of, mixed_file


@pytest.fixture
def tflite(tmp_path: Path) -> Path:
    path = tmp_path / "mixed.tflite"
    path.write_bytes(mixed_file())
    return path


@pytest.mark.parametrize(
    "options", [CompileOptions(), CompileOptions(prefetch_constants=True)], ids=["plain", "fetched"]
)
def test_a_compiled_file_gives_what_its_compile_knew(options: CompileOptions, tflite: Path, tmp_path: Path) -> None:
    result = openneutron.compile(tflite, options=options)
    path = tmp_path / "compiled.bin"  # its contents say what it is
    result.save(path)
    loaded = openneutron.load(str(path))
    report = result.report
    assert (loaded.report.cycles, loaded.report.weights_bytes) == (report.cycles, report.weights_bytes)
    assert loaded.report.target is report.target
    assert sum(call.cycles for call in loaded.profile()) == report.npu_cycles
    wanted = [(item.kernel, item.cycles) for part in report.partitions for item in part.report.operators]
    assert [(call.kernel, call.cycles) for call in loaded.profile()] == wanted
    assert all(call.name for call in loaded.profile())
    assert loaded.on_cpu == Counter(item.operator for item in report.on_cpu)
    inputs = inputs_of(result._simulator, 1)
    for got, want in zip(loaded.run(*inputs), result.run(*inputs), strict=True):
        np.testing.assert_array_equal(got, want)


def test_stripes_are_counted_in_the_profile(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(mixed_file())
    whole = openneutron.compile(path)
    striped = openneutron.compile(
        path, options=CompileOptions(sram_budget=2 * 1024), delegation=DelegationOptions(must_delegate=True)
    )
    striped.save(tmp_path / "striped.tflite")
    loaded = openneutron.load(tmp_path / "striped.tflite")
    wanted = [item.stripes for part in striped.report.partitions for item in part.report.operators]
    assert [call.calls for call in loaded.profile()] == wanted
    assert sum(wanted) > len(whole.report.partitions)


def test_the_summary_of_a_loaded_file(tflite: Path, tmp_path: Path) -> None:
    result = openneutron.compile(tflite)
    result.save(tmp_path / "m.tflite")
    loaded = openneutron.load(tmp_path / "m.tflite")
    lines = loaded.summary().splitlines()
    assert lines[0] == "m.tflite"
    assert [line.split()[0] for line in lines[1:]] == [
        "Target",
        "NPU",
        "CPU",
        "Latency",
        "Time",
        "Arena",
        "Weights",
        "Microcode",
        "File",
    ]
    for name in ("modelled_cycles", "npu_cycles", "copy_cycles", "host_cycles", "host_operators_not_modelled"):
        assert loaded.report.to_dict()[name] == result.report.to_dict()[name]


def refused(path: Path) -> str:
    with pytest.raises((InvalidModelError, InvalidProgramError)) as caught:
        openneutron.load(path)
    return str(caught.value)


def test_files_that_are_not_compiled(tflite: Path, tmp_path: Path) -> None:
    assert refused(tflite) == (
        f"'{tflite}' has no NeutronGraph in it: it is not compiled. Compile it first: openneutron.compile('{tflite}')."
    )
    text, archive, absent = tmp_path / "a.txt", tmp_path / "b.pt2", tmp_path / "c.pte"
    text.write_bytes(b"0123456789")
    archive.write_bytes(b"PK\x03\x04")
    assert refused(text) == (
        f"'{text}' is neither a .pte nor a .tflite: bytes 4 to 7 are b'4567'. openneutron.compile makes these files."
    )
    assert refused(archive) == (
        f"'{archive}' is a file that PyTorch wrote; compile it first: openneutron.compile('{archive}')."
    )
    assert refused(absent) == f"'{absent}' does not exist."
    assert refused(tmp_path) == f"'{tmp_path}' is a folder; a file is needed here."
    with pytest.raises(InvalidModelError) as caught:
        openneutron.load(tflite.read_bytes())  # type: ignore[arg-type]
    assert str(caught.value) == (
        "load: the path of a compiled file is needed; bytes is no path. Write bytes to a file first."
    )


def test_a_damaged_compiled_file(tflite: Path, tmp_path: Path) -> None:
    data = bytearray(openneutron.compile(tflite).buffer)
    (tmp_path / "m.tflite").write_bytes(data[: len(data) // 2])
    assert refused(tmp_path / "m.tflite").startswith("'m.tflite' is damaged: ")
