# SPDX-License-Identifier: BSD-3-Clause
"""Random mutations of programs: each ends in an error code or in a run that stays inside its buffers.

The driver and all kernels are built with the address and undefined-behaviour sanitizers, once with the kernels' variants
for this machine and once with the portable ones alone, and with a low bound for the length of a run.
"""

from __future__ import annotations

import dataclasses
import functools
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from openneutron import targets
from openneutron.compiler import compile_graph
from openneutron.isa import Program, decode, encode
from openneutron.isa.kernel_selection import KernelSelection, called_kernels
from openneutron.isa.rows import KERNELS
from tests.support import programs, random_graphs
from tests.support.altered_programs import CODES
from tests.support.fuzz_seeds import of_jobs, of_language, seeds, write_seeds
from tests.support.fuzzer import VARIANTS, build
from tests.support.programs import comparison

MUTATIONS = 30_000
"""For each of the two builds."""


def test_seeds_call_every_kernel() -> None:
    called = {
        operator.row.name
        for program in (*seeds(), *of_jobs(), *of_language())
        for operator in decode(program).operators
    }
    assert called == {row.name for row in KERNELS}


def with_calls_of_nothing(program: Program) -> Program:
    """The program with each operator once more, in a call whose window holds nothing: nobody checks its parameters."""
    microcode = decode(program)
    count = len(microcode.operators)
    calls = tuple(programs.rows(count + index, 1, 1) for index in range(count))
    return encode(
        dataclasses.replace(
            microcode, operators=2 * microcode.operators, code=(*calls, *microcode.code), names=2 * microcode.names
        ),
        program.weights,
    )


def selected() -> tuple[KernelSelection, list[Program]]:
    """A selection of no kernel whole that has variants, and programs that it takes."""
    names = [name for row in KERNELS for name in ([f"{row.name}:{item.name}" for item in row.variants] or [row.name])]
    # All variants of one kernel would be the kernel.
    names.remove("compare_s8:equal")
    made = [with_calls_of_nothing(program) for program in (comparison("less"), programs.inverted_twice())]
    made += [with_calls_of_nothing(program) for program in seeds()[::4] if set(called_kernels([program])) <= set(names)]
    graphs = (random_graphs.single("fully_connected", seed) for seed in range(20))
    layers = (compile_graph(graph, targets.get("imxrt700")).program for graph in graphs)
    made += [with_calls_of_nothing(layer) for layer in layers if called_kernels([layer]) == ("conv_2d_1x1_s8:vector",)]
    return KernelSelection("OpenNeutron 1", tuple(names)), made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The fuzzer of a variant, built once; beside it ``fuzz_selected``, with the kernels of ``selected`` alone."""
    return functools.cache(
        lambda variant: build(tmp_path_factory.mktemp(variant), *VARIANTS[variant], selection=selected()[0].text())
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_mutations(variant: str, built: Callable[[str], Path], tmp_path: Path) -> None:
    command: list[str | Path] = [
        built(variant),
        str(list(VARIANTS).index(variant)),
        "0",
        str(MUTATIONS),
        *write_seeds(tmp_path, (*seeds(), *of_jobs(), *of_language())),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    ended = Counter({int(code): int(count) for code, count in (line.split() for line in done.stdout.splitlines())})
    assert sum(ended.values()) == MUTATIONS
    assert ended[0] > MUTATIONS // 10, "too few mutations are still sound programs"
    reached = {name for name, code in CODES.items() if ended[code >> 8]}
    assert reached >= {"MAGIC", "VERSION", "TRUNCATED", "CHECKSUM", "LAYOUT", "KERNEL", "BUFFER", "CALL", "INSTRUCTION"}


def test_mutations_where_variants_are_registered(built: Callable[[str], Path], tmp_path: Path) -> None:
    kernels, made = selected()
    assert (
        {"conv_2d_1x1_s8:vector", "compare_s8:less"}
        <= {name for program in made for name in called_kernels([program])}
        <= set(kernels.kernels)
    )
    command: list[str | Path] = [
        built("portable").with_name("fuzz_selected"),
        "7",
        "0",
        str(MUTATIONS // 3),
        *write_seeds(tmp_path, made),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    ended = Counter({int(code): int(count) for code, count in (line.split() for line in done.stdout.splitlines())})
    assert ended[0] > MUTATIONS // 60 and ended[CODES["KERNEL"] >> 8] > 0
