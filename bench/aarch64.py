# SPDX-License-Identifier: BSD-3-Clause
"""Count the instructions of kernel calls on aarch64: qemu-user runs the tests' runner, and a plugin counts (count_instructions.c)."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.cortex_m33.cases import Case, Done, decoded, encoded
from tests.support.tools import required

ROOT = Path(__file__).parents[1]
RUNTIME, TESTS = ROOT / "runtime", ROOT / "tests"
PLUGIN = Path(__file__).parent / "count_instructions.c"
NO_JOBS = Path(__file__).parent / "no_jobs.c"
"""A driver of the NPU beside the processor that does nothing."""

INCLUDES = [f"-I{RUNTIME / name}" for name in ("include", "kernels", "driver")]
CPU = "cortex-a76"
"""QEMU 7.2 has no Cortex-A55. This core has the same instruction set, Armv8.2-A with dot products."""


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="openneutron-aarch64-")


def _call(*command: str | Path) -> str:
    done = subprocess.run(command, cwd=_folder().name, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


@functools.cache
def plugin() -> Path:
    """Return the compiled plugin."""
    _call(required("gcc"), "-O2", "-shared", "-fPIC", PLUGIN, "-o", "count.so")
    return Path(_folder().name) / "count.so"


@functools.cache
def _command(defined: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command that runs the runner, compiled with these flags, and counts."""
    runner = f"runner{len(defined)}"
    compiler = required("aarch64-linux-gnu-gcc")
    sources = [*sorted(RUNTIME.glob("driver/*.c")), *sorted(RUNTIME.glob("kernels/**/*.c"))]
    board = [TESTS / "cortex_m33" / "runner.c", TESTS / "driver" / "linux_board.c", NO_JOBS]
    flags = ["-O2", *defined, "-std=gnu11", "-static", "-no-pie", "-fno-pie", *INCLUDES, f"-I{TESTS / 'cortex_m33'}"]
    _call(compiler, *flags, *sources, *board, "-o", runner)
    symbols = {line.split()[-1]: line.split()[0] for line in _call("aarch64-linux-gnu-nm", runner).splitlines()}
    arguments = f"{plugin()},entry={symbols['board_timer_ticks']},ticks={symbols['board_ticks']}"
    return required("qemu-aarch64"), "-cpu", CPU, "-B", "0", "-plugin", arguments, f"./{runner}"


def run(cases: Sequence[Case], defined: tuple[str, ...] = (), loads: bool = False) -> list[Done]:
    """Return the result of each case; a tick is an instruction, or a loaded byte. ``defined``: further flags for the compiler."""
    folder = Path(_folder().name)
    (folder / "cases").write_bytes(encoded(cases))
    *machine, arguments, runner = _command(defined)
    _call(*machine, arguments + (",loads=1" if loads else ""), runner)
    return decoded(cases, (folder / "results").read_bytes())
