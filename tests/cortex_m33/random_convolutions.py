# SPDX-License-Identifier: BSD-3-Clause
"""Random calls of convolutions on an emulated board, beside the portable kernels on the host.

The same calls, from the same seed, run on both; their results have the same checksum.
"""

from __future__ import annotations

import functools
import struct
import subprocess

import numpy as np
import numpy.typing as npt

from tests.cortex_m33.boards import CORTEX_M33, Board
from tests.cortex_m33.firmware import HERE, ROOT, execute, image, library, new_folder
from tests.support.convolution_calls import FLAGS, SOURCES
from tests.support.objects import compiled

SEED, CASES = 7, 1000
CALLS = ROOT / "tests" / "runtime"


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


def compare(form: str, flags: tuple[str, ...], compiler: str, board: Board = CORTEX_M33) -> None:
    """Fails where a call leaves other bytes than the portable kernels on the host. ``form``: "" or "_16"."""
    archive = library(flags, compiler, SOURCES, board)  # first: skips where the compiler is absent
    want = wanted(f"fuzz_convolution{form}")
    firmware = image(archive, (HERE / f"convolutions{form}.c", HERE / "board.c"), includes=(CALLS,), board=board)
    done = execute(firmware, {"seed": struct.pack("<2I", SEED, CASES)})
    assert done.exit_code == 0, done.console
    got = np.frombuffer(done.files["results"], np.uint32)
    differ = np.flatnonzero(got != want)
    assert differ.size == 0, f"case {differ[0]} is the first of {CASES} that differs"
    assert np.unique(want).size > CASES // 3
