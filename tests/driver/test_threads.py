# SPDX-License-Identifier: BSD-3-Clause
"""Several threads in the driver at once: the results, and the thread sanitizer's opinion."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from openneutron.isa.kernel_selection import KernelSelection, called_kernels
from tests.support import programs
from tests.support.c_api import Buffers, Prepared
from tests.support.tools import sanitizing_compiler

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "runtime"
FLAGS = [
    *("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-O1", "-g", "-pthread", "-fsanitize=thread"),
    *(f"-I{RUNTIME / folder}" for folder in ("include", "kernels", "driver")),
]


def test_one_handle_in_several_threads(prepared: Prepared) -> None:
    """A run keeps its state to itself; each thread brings its own buffers."""

    def worker(seed: int) -> bool:
        buffers = Buffers(seed=seed)
        return all(buffers.run(prepared) == 0 and buffers.right() for _ in range(200))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(worker, range(8)))


def sanitized(folder: Path, *defines: str) -> Path:
    """tests/driver/threads.c with the driver and the kernels that its programs call, under the thread sanitizer."""
    compiler = sanitizing_compiler(("-fsanitize=thread",))
    selection = folder / "threads_kernel_selection.c"
    selection.write_text(KernelSelection("tests", called_kernels([programs.inverted_twice()])).text())
    sources = [
        Path(__file__).parent / "threads.c",
        *sorted((RUNTIME / "driver").glob("*.c")),
        RUNTIME / "kernels" / "check.c",
        *sorted((RUNTIME / "kernels" / "lookup").glob("*.c")),
        selection,
    ]
    executable = folder / "threads"
    subprocess.run([compiler, *FLAGS, *defines, *map(str, sources), "-o", str(executable)], check=True)
    return executable


def ran(executable: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    arguments = []
    for number, program in enumerate((programs.inverted_twice(), programs.striped((1, 6, 5, 3)))):
        for name, blob in (("microcode", program.microcode), ("weights", program.weights)):
            (folder / f"{name}{number}").write_bytes(blob)
            arguments.append(str(folder / f"{name}{number}"))
    command = [str(executable), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unexpected memory mapping" in done.stderr:  # more random addresses than this sanitizer's release can do with
        done = subprocess.run(["setarch", "-R", *command], capture_output=True, text=True, check=False)
    return done


def test_no_data_race(tmp_path: Path) -> None:
    done = ran(sanitized(tmp_path), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_data_race_would_be_seen(tmp_path: Path) -> None:
    """The same with threads that share a buffer: the sanitizer says so, so that its silence above means something."""
    done = ran(sanitized(tmp_path, "-DSHARED_SCRATCH"), tmp_path)
    assert "WARNING: ThreadSanitizer: data race" in done.stderr
