# SPDX-License-Identifier: BSD-3-Clause
"""Kernel selections linked with the library: they take the place of its table, and the linker drops the other kernels."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path

import pytest

from openneutron.isa import Program, Record, decode, encode, rows
from openneutron.isa.kernel_selection import KernelSelection, called_kernels
from tests.support import programs
from tests.support.objects import compiled
from tests.support.programs import RELATIONS, comparison
from tests.support.runtime_builds import WITHOUT_HEAP, c_compiler, driver_sources, kernel_sources, written
from tests.support.tools import required


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    objects = compiled(folder, c_compiler(), WITHOUT_HEAP, [*driver_sources(), *kernel_sources()])
    archive = folder / "libneutron.a"
    subprocess.run(["ar", "rcs", archive, *sorted(objects)], check=True)
    return archive


def linked(folder: Path, library: Path, kernels: tuple[str, ...] | None) -> tuple[Path, set[str]]:
    """The harness with a selection (or the library's own table), and the kernels' run functions that are left in it."""
    sources = [Path(__file__).parent / "no_heap.c"]
    if kernels is not None:
        selection = folder / "model_kernel_selection.c"
        selection.write_text(KernelSelection("OpenNeutron 1", kernels).text())
        sources.append(selection)
    runner = folder / "runner"
    subprocess.run([c_compiler(), *WITHOUT_HEAP, *sources, library, "-Wl,--gc-sections", "-o", runner], check=True)
    symbols = subprocess.run(["nm", runner], capture_output=True, text=True, check=True).stdout
    return runner, set(re.findall(r" [Tt] (\w+_s8_run\w*)$", symbols, re.MULTILINE))


def ran(folder: Path, runner: Path, program: Program) -> tuple[int, str]:
    done = subprocess.run([runner, *written(folder, program)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


PREPARE_REFUSED = 2


def test_a_selection_takes_the_place_of_the_library_s_table(library: Path, tmp_path: Path) -> None:
    every, names = linked(tmp_path, library, None)
    assert {"conv_2d_s8_run", "compare_s8_run", "lookup_s8_run"} <= names
    assert ran(tmp_path, every, programs.inverted_twice()) == (0, bytes(range(90)).hex())
    kernels = called_kernels([programs.inverted_twice()])
    assert kernels == ("lookup_s8",)
    few, names = linked(tmp_path, library, kernels)
    assert names == {"lookup_s8_run"}
    assert ran(tmp_path, few, programs.inverted_twice()) == (0, bytes(range(90)).hex())
    assert ran(tmp_path, few, comparison("less")) == (PREPARE_REFUSED, "")


@pytest.mark.parametrize("relation", ["less", "greater_equal"])
def test_a_variant_takes_its_own_calls_alone(library: Path, tmp_path: Path, relation: str) -> None:
    kernels = called_kernels([comparison(relation)])
    assert kernels == (f"compare_s8:{relation}",)
    runner, names = linked(tmp_path, library, kernels)
    assert names == {f"compare_s8_run_{relation}"}
    expected = bytes(int((place < place - 128) == (relation == "less")) for place in range(90)).hex()
    assert ran(tmp_path, runner, comparison(relation)) == (0, expected)
    for other in set(RELATIONS) - {relation}:
        assert ran(tmp_path, runner, comparison(other)) == (PREPARE_REFUSED, "")


def test_several_variants(library: Path, tmp_path: Path) -> None:
    kernels = called_kernels([comparison("equal"), comparison("not_equal")])
    runner, names = linked(tmp_path, library, kernels)
    assert names == {"compare_s8_run_equal", "compare_s8_run_not_equal"}
    assert ran(tmp_path, runner, comparison("equal")) == (0, bytes(90).hex())
    assert ran(tmp_path, runner, comparison("not_equal")) == (0, bytes([1] * 90).hex())
    assert ran(tmp_path, runner, comparison("less")) == (PREPARE_REFUSED, "")


def with_an_empty_call(program: Program, operator: Record) -> Program:
    """The program with one call more in front, of an operator that nothing has checked: its window holds no element."""
    microcode = decode(program)
    added = dataclasses.replace(
        microcode,
        operators=(*microcode.operators, operator),
        code=(programs.rows(len(microcode.operators), 3, 3), *microcode.code),
        names=(),
    )
    return encode(added, program.weights)


@pytest.mark.parametrize("far", [2**31 - 1, 3], ids=["far away", "next"])
def test_a_call_of_nothing_is_no_call(library: Path, tmp_path: Path, far: int) -> None:
    """Its parameters are not looked at: neither to check them, nor to find the variant that would take them."""
    runner, names = linked(tmp_path, library, ("conv_2d_1x1_s8:vector", "compare_s8:less"))
    assert names >= {"conv_2d_1x1_s8_run_vector", "compare_s8_run_less"}
    words = dict.fromkeys((field.name for field in rows.KERNEL_BY_NAME["conv_2d_1x1_s8"].fields), 0)
    vector = programs.kernel("conv_2d_1x1_s8", **{**words, "single_rounding": 1, "input": far, "output": 2})
    less, greater = comparison("less"), decode(comparison("greater")).operators[0]
    for operator in (vector, greater):
        assert ran(tmp_path, runner, with_an_empty_call(less, operator)) == ran(tmp_path, runner, less)


@pytest.mark.parametrize("compiler", ["arm-none-eabi-gcc", "clang"])
def test_every_line_compiles_for_a_cortex_m33(compiler: str, tmp_path: Path) -> None:
    arm = required("arm-none-eabi-gcc")  # clang compiles against its C library's headers
    required(compiler)
    machine = ["-mcpu=cortex-m33", "-mthumb"]
    if compiler == "clang":
        sysroot = subprocess.run([arm, "-print-sysroot"], capture_output=True, text=True, check=True).stdout.strip()
        machine = ["--target=arm-none-eabi", *machine, f"-I{Path(sysroot) / 'include'}"]
    variants = {f"{row.name}:{item.name}" for row in rows.KERNELS for item in row.variants}
    whole = {row.name for row in rows.KERNELS if not row.variants}
    for name, kernels in (("all", (*whole, *variants)), ("no", ())):
        path = tmp_path / f"{name}_kernel_selection.c"
        path.write_text(KernelSelection("OpenNeutron 1", kernels).text())
        subprocess.run([compiler, *machine, *WITHOUT_HEAP, "-Os", "-c", path, "-o", tmp_path / "all.o"], check=True)
