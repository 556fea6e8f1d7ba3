# SPDX-License-Identifier: BSD-3-Clause
"""The Cortex-M33 build in QEMU: the kernels on a 32-bit machine give the bytes that the host's fast ones do, on little stack."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.isa import Program
from openneutron.options import CALLER
from tests.cortex_m33.cases import MOST_STACK, Case, Flag, inputs_and_outputs, run
from tests.cortex_m33.firmware import SIZE, SPEED, image, library
from tests.cortex_m33.instructions import BUILDS
from tests.support import random_graphs
from tests.support.fuzz_seeds import seeds
from tests.support.oracle import TARGET

FETCH = CompileOptions(io_place=CALLER, prefetch_constants=True)


def run_like_the_host(
    programs: Callable[[], Sequence[Program]], flags: Flag, build: tuple[str, ...] = SIZE, compiler: str = "gcc"
) -> None:
    archive = library(build, compiler)  # first: skips where the compiler is absent
    made = programs()
    random = np.random.default_rng(0)
    both = [inputs_and_outputs(program, random) for program in made]
    cases = [Case(program, (given,), flags) for program, (given, _) in zip(made, both, strict=True)]
    for number, (done, (_, want)) in enumerate(zip(run(image(archive), cases), both, strict=True)):
        assert (done.prepare, done.runs[0].error) == (0, 0), number
        assert done.runs[0].outputs == want, number
        assert done.prepare_stack <= MOST_STACK and done.runs[0].stack <= MOST_STACK, number


@pytest.mark.parametrize("flags", [*BUILDS.values(), SPEED], ids=[*BUILDS, "DSP, for speed"])
def test_every_kernel_gives_the_hosts_bytes(flags: tuple[str, ...]) -> None:
    run_like_the_host(seeds, Flag.STACK, flags)


@pytest.mark.parametrize("build", [SIZE, SPEED], ids=["for size", "for speed"])
def test_every_kernel_built_by_clang_gives_the_hosts_bytes(build: tuple[str, ...]) -> None:
    run_like_the_host(seeds, Flag.STACK, build, "clang")


def test_every_operator_with_its_constants_in_flash() -> None:
    """The constants are where only the copy engine can read them."""
    graphs = [random_graphs.single(op, seed) for op in sorted(random_graphs.SAMPLERS) for seed in (0, 1)]
    run_like_the_host(
        lambda: [compile_graph(graph, TARGET, FETCH).program for graph in graphs], Flag.FLASH | Flag.ASYNCHRONOUS
    )
