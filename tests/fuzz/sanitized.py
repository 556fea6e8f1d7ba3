# SPDX-License-Identifier: BSD-3-Clause
"""Random graphs under sanitizers: ``python -m tests.fuzz.sanitized FIRST END [BUILD]`` goes through the seeds from FIRST up to END.

Programs that call every kernel come first. Then each graph of ``tests.fuzz.targets`` is compiled for a random processor and for a random chip, with the least and with ample memory. The programs
run under the address and undefined-behaviour sanitizers, in memory of exactly their size, by the kernels for this computer, by the portable ones
and, in qemu-user, by those for NEON. Without an operating system there is no address sanitizer: on the boards with Cortex-M33 (DSP) and
Cortex-M55 (Helium), undefined behaviour ends a run with a fault. The outputs are compared with LiteRT.
"""

from __future__ import annotations

import functools
import itertools
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from openneutron.compiler import CompileOptions
from openneutron.compiler.driver import compile_prepared, prepared
from openneutron.errors import BudgetError, InvalidModelError
from openneutron.isa import Program
from tests.cortex_m33 import cases, firmware
from tests.cortex_m33.boards import CORTEX_M33, CORTEX_M55, Board
from tests.fuzz import cpus
from tests.fuzz.targets import graph_of, target_of
from tests.support import oracle
from tests.support.built_once import built_once
from tests.support.fuzz_seeds import covering
from tests.support.objects import compiled
from tests.support.runtime_builds import INCLUDES, MEMORY_CHECKED, driver_sources, kernel_sources
from tests.support.tools import required, sanitizing_compiler

SOURCE = Path(__file__).with_name("exact_runs.c")
TRAPS = ("-Os", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
"""The flags of a library on a board: undefined behaviour is an undefined instruction."""

AT_ONCE = 20
"""The number of seeds whose programs run in one process."""


@dataclass(frozen=True, slots=True)
class Run:
    """A program, the bytes of its inputs one after the other, and those of the outputs that LiteRT computes."""

    name: str
    program: Program
    inputs: bytes
    outputs: bytes


def runs_of(seed: int) -> Iterator[Run]:
    """Yield the runs of a seed's graph: for each target that it fits, one with the least memory and one with ample memory."""
    graph = graph_of(seed)
    given, wanted = oracle.random_inputs(graph, seed), b""
    for target in (cpus.target_of(seed), target_of(seed)):
        options = CompileOptions(prefetch_constants=bool(seed % 2) and len(target.regions) == 1)
        try:
            kept = prepared(graph, kept=True)
            made = [compile_prepared(kept, target, options)]
            least = oracle.least_budget(graph, options.prefetch_constants, target=target, given=kept)
            made.append(compile_prepared(kept, target, replace(options, sram_budget=least)))
        except (BudgetError, InvalidModelError):
            continue
        wanted = wanted or _joined(oracle.reference_outputs(graph, given))
        for each in made:
            name = f"seed {seed}, {target.name}, {each.report.sram_bytes} bytes"
            yield Run(name, each.program, _joined(given), wanted)


def every_kernel() -> Iterator[Run]:
    """Yield runs of programs that together call every kernel. Their outputs are those of this computer's library."""
    for number, program in enumerate(covering()):
        inputs, outputs = cases.inputs_and_outputs(program, np.random.default_rng(number))
        yield Run(f"program {number} of those with every kernel", program, inputs, outputs)


def _joined(arrays: Sequence[np.ndarray]) -> bytes:
    return b"".join(array.tobytes() for array in arrays)


def run_here(compiler: str, flags: tuple[str, ...], emulator: tuple[str, ...], runs: Sequence[Run]) -> str:
    """Run programs in memory of exactly their size. Return the report of a sanitizer or of a difference, or an empty text."""
    with tempfile.TemporaryDirectory() as name:
        words = ((len(run.program.microcode), len(run.program.weights)) for run in runs)
        parts = ((run.program.microcode, run.program.weights, run.inputs, run.outputs) for run in runs)
        file = Path(name) / "cases"
        file.write_bytes(
            b"".join(struct.pack("<2I", *size) + b"".join(part) for size, part in zip(words, parts, strict=True))
        )
        # The leak sanitizer needs ptrace, which qemu-user has not.
        environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"} if emulator else None
        command = [*emulator, str(_runner(compiler, flags)), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return "" if done.returncode == 0 else (done.stdout + done.stderr)[-4000:]


@functools.cache
def _runner(compiler: str, flags: tuple[str, ...]) -> Path:
    def build(folder: Path) -> None:
        sources = [SOURCE, *driver_sources(), *kernel_sources()]
        objects = compiled(folder, compiler, [*MEMORY_CHECKED, *flags, *INCLUDES], sources)
        subprocess.run([compiler, *MEMORY_CHECKED, *objects, "-o", folder / "exact_runs"], check=True)

    return built_once("-".join(("exact-runs", Path(compiler).name, *flags)), build) / "exact_runs"


def _on_this_computer(runs: Sequence[Run]) -> str:
    return run_here(sanitizing_compiler(MEMORY_CHECKED), (), (), runs)


def _portable(runs: Sequence[Run]) -> str:
    return run_here(sanitizing_compiler(MEMORY_CHECKED), ("-DNEUTRON_PORTABLE_ONLY",), (), runs)


def _with_neon(runs: Sequence[Run]) -> str:
    compiler = required("aarch64-linux-gnu-gcc")
    libc = subprocess.run([compiler, "-print-file-name=libc.so.6"], capture_output=True, text=True, check=True).stdout
    folder = Path(libc.strip()).resolve().parents[1]
    # Without optimization, arguments of inline functions are no constants, which shifts of NEON need.
    return run_here(compiler, ("-O1",), (required("qemu-aarch64"), "-cpu", "cortex-a76", "-L", str(folder)), runs)


def _on_board(board: Board, runs: Sequence[Run]) -> str:
    image = firmware.image(firmware.library(TRAPS, board=board), board=board)
    given = [cases.Case(run.program, (run.inputs,)) for run in runs]
    executed = firmware.execute(image, {"cases": cases.encoded(given)})
    if executed.exit_code != 0:
        return f"exit code {executed.exit_code}: {executed.console}"
    done = cases.decoded(given, executed.files["results"])
    for run, each in zip(runs, done, strict=True):
        if each.prepare or each.runs[0].error or each.runs[0].outputs != run.outputs:
            return f"{run.name}: prepare returns {each.prepare}, or outputs differ"
    return ""


BUILDS: dict[str, Callable[[Sequence[Run]], str]] = {
    "host": _on_this_computer,
    "portable": _portable,
    "neon": _with_neon,
    "dsp": functools.partial(_on_board, CORTEX_M33),
    "helium": functools.partial(_on_board, CORTEX_M55),
}
"""The functions that run programs, by the kernels that compute them."""


def check(runs: Sequence[Run], build: str) -> list[str]:
    """Return the runs that fail with a build, each with its report."""
    said = BUILDS[build](runs)
    if not said:
        return []
    if len(runs) == 1:
        return [f"{build}: {runs[0].name}: {said}"]
    middle = len(runs) // 2
    return check(runs[:middle], build) + check(runs[middle:], build)


def main(first: int, end: int, *builds: str) -> int:
    """Run the programs of seeds [first, end), and print each failure and the sum. Return 1 where anything failed."""
    count, failures = 0, 0
    parts = (range(start, min(end, start + AT_ONCE)) for start in range(first, end, AT_ONCE))
    for runs in itertools.chain(
        [[*every_kernel()]], ([run for seed in part for run in runs_of(seed)] for part in parts)
    ):
        count += len(runs)
        for build in builds or BUILDS:
            for line in check(runs, build):
                failures += 1
                print(line, flush=True)
    print(f"{count} programs with {', '.join(builds or BUILDS)}: {failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
