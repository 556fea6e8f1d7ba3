# SPDX-License-Identifier: BSD-3-Clause
"""The host library for Linux on aarch64, in qemu-user: the results and the refusals of this computer's library."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from openneutron.isa import Program
from tests.cortex_m33.cases import Case, Done, Misuse, decoded, encoded, inputs_and_outputs
from tests.cortex_m33.misuse import CHECK_AND_PREPARE, RUN
from tests.cortex_m33.models import model
from tests.support.altered_programs import CODES
from tests.support.fuzz_seeds import seeds
from tests.support.refusals import REFUSALS, code
from tests.support.runtime_builds import WARNINGS
from tests.support.tools import required

ROOT = Path(__file__).parents[2]
BOARD = ROOT / "tests" / "cortex_m33"
SOURCES = (BOARD / "runner.c", Path(__file__).parent / "linux_board.c")

ABOUT_CONTEXTS = {Misuse.NULL_CONTEXT, Misuse.ODD_CONTEXT, Misuse.UNPREPARED}
"""Misuse of the memory that an application gives a model; this library has a heap."""

Run = Callable[[Sequence[Case]], list[Done]]


def called(*command: str | Path, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs cases with the library as the wheel for aarch64 has it."""
    folder = tmp_path_factory.mktemp("aarch64")
    compiler, emulator, cmake = required("aarch64-linux-gnu-gcc"), required("qemu-aarch64"), required("cmake")
    required("ninja")
    toolchain = ROOT / "runtime" / "ports" / "host" / "aarch64.cmake"
    called(
        cmake,
        "-S",
        ROOT,
        "-B",
        folder,
        "-G",
        "Ninja",
        "--toolchain",
        toolchain,
        "-DOPENNEUTRON_WERROR=ON",
        folder=folder,
    )
    called(cmake, "--build", folder, "--target", "neutron", folder=folder)
    includes = [f"-I{path}" for path in (BOARD, ROOT / "runtime" / "include")]
    link = ["-L.", "-lneutron", "-Wl,-rpath,$ORIGIN", "-o", "runner"]
    called(compiler, *WARNINGS, *includes, *SOURCES, *link, folder=folder)
    found = called(compiler, "-print-file-name=libc.so.6", folder=folder).strip()
    libraries = Path(found).resolve().parents[1]

    def run(cases: Sequence[Case]) -> list[Done]:
        (folder / "cases").write_bytes(encoded(cases))
        called(emulator, "-L", libraries, "./runner", folder=folder)
        return decoded(cases, (folder / "results").read_bytes())

    return run


def test_every_kernel_gives_the_same_bytes(run: Run) -> None:
    random = np.random.default_rng(0)
    both = [inputs_and_outputs(program, random) for program in seeds()]
    done = run([Case(program, (given,)) for program, (given, _) in zip(seeds(), both, strict=True)])
    for number, (found, (_, want)) in enumerate(zip(done, both, strict=True)):
        assert (found.prepare, found.runs[0].error, found.runs[0].outputs) == (0, 0, want), number


def test_changed_programs_and_misuse_are_refused(run: Run, shared_models: Path) -> None:
    program: Program = model("ResNet-8", prefetch_constants=True).program
    inputs, outputs = inputs_and_outputs(program, np.random.default_rng(1))
    prepared = {misuse: names for misuse, names in CHECK_AND_PREPARE.items() if misuse not in ABOUT_CONTEXTS}
    ran = {misuse: name for misuse, name in RUN.items() if misuse not in ABOUT_CONTEXTS}
    cases = [
        *(Case(refusal.change(program)) for refusal in REFUSALS),
        *(Case(program, misuse=misuse) for misuse in prepared),
        *(Case(program, (inputs,), misuse=misuse) for misuse in ran),
        Case(program, (inputs,)),
    ]
    *results, last = run(cases)
    found = [(done.check, done.prepare) for done in results]
    wanted = [refusal.codes for refusal in REFUSALS] + [(code(a), code(b)) for a, b in prepared.values()]
    assert found == wanted + [(0, 0)] * len(ran)
    assert [done.runs[0].error for done in results[-len(ran) :]] == [CODES[name] for name in ran.values()]
    assert last.runs[0].outputs == outputs
