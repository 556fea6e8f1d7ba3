# SPDX-License-Identifier: BSD-3-Clause
"""Random calls of kernels on aarch64: ``python -m tests.fuzz.aarch64 FIRST END`` goes through the numbers from FIRST up to END.

qemu-user runs each call with the dot product extension and without it (Cortex-A76 and Cortex-A53; QEMU 7.2 has no Cortex-A55). A
convolution is computed by the portable kernel and by the one for NEON, on tensors laid out in any way, and their bytes are compared.
The outputs of the other kernels are compared with those of the portable kernels on this machine.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.cortex_m33 import firmware, random_calls
from tests.support import aarch64
from tests.support.built_once import built_once
from tests.support.tools import required

TESTS = Path(__file__).parents[1]
CPUS = ("cortex-a76", "cortex-a53")
CONVOLUTIONS = re.compile(r"sound (\d+) damaged (\d+) portable (\d+) vector (\d+) differ 0 checksum ([0-9a-f]{8})\n")


@functools.cache
def programs() -> Path:
    """Return the folder with the programs ``calls`` and ``convolutions``."""

    def build(folder: Path) -> None:
        compiler = required("aarch64-linux-gnu-gcc")
        includes = [*firmware.INCLUDES, f"-I{random_calls.HERE}", f"-I{TESTS / 'runtime'}"]
        kernels = aarch64.library_folder() / "kernels.a"
        calls = (
            TESTS / "driver" / "random_calls_linux.c",
            TESTS / "driver" / "linux_board.c",
            random_calls.HERE / "random_calls.c",
        )
        mains = {"calls": calls, "convolutions": (TESTS / "runtime" / "fuzz_convolution.c",)}
        for name, sources in mains.items():
            command = [compiler, "-std=gnu11", "-O2", "-static", *includes, *sources, kernels, "-o", name]
            subprocess.run(command, cwd=folder, check=True)

    return built_once("random-calls-aarch64", build)


def _run(cpu: str, *command: str) -> str:
    emulated = (required("qemu-aarch64"), "-cpu", cpu, *command)
    done = subprocess.run(emulated, cwd=programs(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{cpu}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def compare_convolutions(seed: int, count: int, cpu: str) -> None:
    """Compare so many convolutions on this core; the variant for NEON takes at least half of the sound ones."""
    found = CONVOLUTIONS.fullmatch(_run(cpu, "./convolutions", str(seed), str(count)))
    assert found is not None
    sound, _, _, vector = map(int, found.groups()[:4])
    assert vector > sound // 2


def compare_elements(kernels: Sequence[str], first: int, count: int, cpu: str) -> None:
    """Compare so many calls of each kernel on this core."""
    numbers = [random_calls.KERNELS.index(kernel) for kernel in kernels]
    (programs() / "cases").write_bytes(np.array([(number, first, count) for number in numbers], np.uint32).tobytes())
    _run(cpu, "./calls")
    results = np.fromfile(programs() / "results", np.uint32).reshape(len(kernels), count)
    for kernel, got in zip(kernels, results, strict=True):
        random_calls.expect_portable(kernel, first, got)


def main(first: int, end: int) -> None:
    for cpu in CPUS:
        compare_convolutions(first, end - first, cpu)
        compare_elements(random_calls.KERNELS[1:], first, end - first, cpu)
        print(
            f"{cpu}: {end - first} convolutions, and as many calls of each of {len(random_calls.KERNELS) - 1} kernels",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
