# SPDX-License-Identifier: BSD-3-Clause
"""The border that ExecuTorch's NXP delegate works at, with its source or without: see contract.cpp."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest

from openneutron.isa import Program, with_checksum
from openneutron.isa.kernel_selection import KernelSelection, called_kernels
from openneutron.isa.payload import Format, Payload
from tests.support import programs
from tests.support.objects import compiled
from tests.support.tools import required

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "runtime"
INCLUDES = [f"-I{RUNTIME / folder}" for folder in ("include", "kernels", "driver")]
CONTRACT = Path(__file__).with_name("contract.cpp")
INPUT = bytes(range(200, 216)) + bytes(112)
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, list[Path]]:
    """The driver with one kernel, built with a heap (False) and without."""
    made = {}
    for no_heap in (False, True):
        folder = tmp_path_factory.mktemp("driver")
        (folder / "kernel_selection.c").write_text(
            KernelSelection("tests", called_kernels([programs.fetched()])).text()
        )
        sources = [*sorted((RUNTIME / "driver").glob("*.c")), RUNTIME / "kernels" / "check.c"]
        sources += [*sorted((RUNTIME / "kernels" / "lookup").glob("lookup_s8*.c")), folder / "kernel_selection.c"]
        flags = ["-std=c11", *WARNINGS, "-O1", *INCLUDES, f"-DNO_HEAP_USAGE={int(no_heap)}"]
        made[no_heap] = sorted(compiled(folder, required("cc", "gcc", "clang"), flags, sources))
    return made


def said(folder: Path, objects: list[Path], switches: list[str], blob: bytes) -> tuple[int, list[str]]:
    """The exit code and lines of contract.cpp, built with these switches, for a payload."""
    compiler = required(*([os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]))
    command = [compiler, "-std=c++17", *WARNINGS, "-O1", f"-I{RUNTIME / 'include'}"]
    command += [
        *(f"-D{switch}" for switch in switches),
        str(CONTRACT),
        *map(str, objects),
        "-o",
        str(folder / "contract"),
    ]
    subprocess.run(command, check=True)
    (folder / "payload").write_bytes(blob)
    (folder / "input").write_bytes(INPUT)
    command = [str(folder / name) for name in ("contract", "payload", "input")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def composed(program: Program) -> bytes:
    return Payload(program, (Format.CONTIGUOUS,), (Format.CONTIGUOUS,), (0,), (0,), 1).compose()


INVERTED = [bytes(255 - value for value in INPUT[:16]).hex()]


def test_plain(objects: dict[bool, list[Path]], tmp_path: Path) -> None:
    program = programs.through_scratch()
    assert said(tmp_path, objects[False], [], composed(program)) == (0, INVERTED)


def test_profile(objects: dict[bool, list[Path]], tmp_path: Path) -> None:
    """The events that the delegate reports are the program's kernel calls, in modelled cycles."""
    program = programs.inverted_twice(profile_size=64)  # room for more than there are
    code, lines = said(tmp_path, objects[False], ["NEUTRON_PROFILE"], composed(program))
    assert (code, lines) == (0, ["operator 0: 0 to 100", "operator 1: 100 to 150", INPUT[:16].hex()])


def test_every_switch(objects: dict[bool, list[Path]], tmp_path: Path) -> None:
    """Constants copied by the delegate's own callbacks, its memory for the context, and power around the run alone."""
    switches = ["EXTERNAL_MEM", "NO_HEAP_USAGE=1", "NEUTRON_NPU_POWER_GATING", "NEUTRON_PROFILE"]
    assert said(tmp_path, objects[True], switches, composed(programs.fetched())) == (0, ["copied 256", *INVERTED])


def test_a_delegate_with_memory_on_a_driver_with_a_heap(objects: dict[bool, list[Path]], tmp_path: Path) -> None:
    """The driver then takes its own and gives its own back."""
    blob = composed(programs.through_scratch())
    assert said(tmp_path, objects[False], ["NO_HEAP_USAGE=1"], blob) == (0, INVERTED)


def test_microcode_of_another_compiler(objects: dict[bool, list[Path]], tmp_path: Path) -> None:
    """A payload as the public facts have it: the magic word and the sizes, and a second word that is not ours."""
    program = programs.through_scratch()
    microcode = bytearray(program.microcode)
    microcode[4:8] = bytes(4)
    other = with_checksum(dataclasses.replace(program, microcode=bytes(microcode)))
    blob = composed(program).replace(program.microcode, other.microcode)
    assert said(tmp_path, objects[False], [], blob) == (1, ["prepare: 4627 unsupported"])
