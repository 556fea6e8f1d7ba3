# SPDX-License-Identifier: BSD-3-Clause
"""Programs in C that use the driver in several threads, under the thread sanitizer."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from openneutron.isa.kernel_selection import KernelSelection, called_kernels
from tests.support import programs
from tests.support.tools import sanitizing_compiler

RUNTIME = Path(__file__).parents[2] / "runtime"
FLAGS = [
    *("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-O1", "-g", "-pthread", "-fsanitize=thread"),
    *(f"-I{RUNTIME / folder}" for folder in ("include", "kernels", "driver")),
]


def sanitized(folder: Path, sources: Sequence[Path], *flags: str) -> Path:
    """Return the executable of the sources with the driver and the kernels that their programs call, under the thread sanitizer."""
    compiler = sanitizing_compiler(("-fsanitize=thread",))
    selection = folder / "threads_kernel_selection.c"
    selection.write_text(KernelSelection("tests", called_kernels([programs.inverted_twice()])).text())
    compiled = [
        *sources,
        *sorted((RUNTIME / "driver").glob("*.c")),
        RUNTIME / "kernels" / "check.c",
        *sorted((RUNTIME / "kernels" / "lookup").glob("lookup_s8*.c")),
        selection,
    ]
    executable = folder / "threads"
    subprocess.run([compiler, *FLAGS, *flags, *map(str, compiled), "-o", str(executable)], check=True)
    return executable


def ran(executable: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the executable with the options and the files of two programs, and return the finished process."""
    arguments = list(options)
    for number, program in enumerate((programs.inverted_twice(), programs.striped((1, 6, 5, 3)))):
        for name, blob in (("microcode", program.microcode), ("weights", program.weights)):
            (folder / f"{name}{number}").write_bytes(blob)
            arguments.append(str(folder / f"{name}{number}"))
    command = [str(executable), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if "unexpected memory mapping" in done.stderr:  # more random addresses than this sanitizer's release can do with
        done = subprocess.run(["setarch", "-R", *command], capture_output=True, text=True, check=False, timeout=300)
    return done
