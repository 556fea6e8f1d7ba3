# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions of the DSP extension against the portable ones: random calls on tensors laid out in any way, with any table.

The same calls, from the same seed, run on the host and on the emulated Cortex-M33; their results have the same checksum.
"""

from __future__ import annotations

import functools
import struct
import subprocess

import numpy as np
import numpy.typing as npt
import pytest

from tests.cortex_m33.firmware import HERE, ROOT, SIZE, SPEED, execute, image, library, new_folder
from tests.support.convolution_calls import FLAGS, SOURCES
from tests.support.objects import compiled

SEED, CASES = 7, 1000
CALLS = ROOT / "tests" / "runtime"
BUILDS = {
    "for size": (SIZE, "gcc"),
    "for speed": (SPEED, "gcc"),
    "clang, for size": (SIZE, "clang"),
    "portable": (("-Os", "-mcpu=cortex-m33+nodsp"), "gcc"),
}
"""Flags and a compiler."""


@functools.cache
def wanted(name: str) -> npt.NDArray[np.uint32]:
    """The host's checksum after each case, by the portable kernels."""
    folder = new_folder()
    flags = (*FLAGS, "-O3", "-fPIC", "-DNEUTRON_PORTABLE_ONLY")
    objects = compiled(folder, "gcc", flags, [CALLS / f"{name}.c", *SOURCES])
    subprocess.run(["gcc", "-o", "calls", *objects], cwd=folder, check=True)
    done = subprocess.run(
        [folder / "calls", str(SEED), str(CASES), folder / "checksums"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return np.fromfile(folder / "checksums", np.uint32)


@pytest.mark.parametrize("form", ["", "_16"])
@pytest.mark.parametrize("build", BUILDS)
def test_random_calls_give_the_portable_kernels_bytes(build: str, form: str) -> None:
    archive = library(*BUILDS[build], SOURCES)  # first: skips where the compiler is absent
    want = wanted(f"fuzz_convolution{form}")
    firmware = image(archive, (HERE / f"convolutions{form}.c", HERE / "board.c"), includes=(CALLS,))
    done = execute(firmware, {"seed": struct.pack("<2I", SEED, CASES)})
    assert done.exit_code == 0, done.console
    got = np.frombuffer(done.files["results"], np.uint32)
    differ = np.flatnonzero(got != want)
    assert differ.size == 0, f"case {differ[0]} is the first of {CASES} that differs"
    assert np.unique(want).size > CASES // 3
