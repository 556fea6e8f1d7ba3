# SPDX-License-Identifier: BSD-3-Clause
"""Random calls of kernels on an emulated board, beside the portable kernels on the host."""

from __future__ import annotations

import ctypes
import functools
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.cortex_m33 import firmware
from tests.cortex_m33.boards import CORTEX_M33, Board
from tests.support.objects import compiled

HERE = Path(__file__).parent
KERNELS = (
    "depthwise_conv_2d_s8",
    "add_s8",
    "mul_s8",
    "maximum_s8",
    "squared_difference_s8",
    "prelu_s8",
    "average_pool_2d_s8",
    "max_pool_2d_s8",
    "mean_s8",
    "sum_s8",
    "reduce_max_s8",
    "pad_s8",
    "copy_s8",
    "lookup_s8",
    "softmax_s8",
    "batch_matmul_s8",
    "depthwise_conv_2d_s8:3x3",
)
"""Kernels and variants in the order of random_calls.c."""

NO_CALL = {0: "check refused the call", 1: "there is no such kernel", 2: "the call is too large"}
ROOM = 1 << 16
Checksums = npt.NDArray[np.uint32]


def sources() -> tuple[Path, ...]:
    """Return the C sources of these kernels and of what they share."""
    folders = {kernel.rsplit("_", 1)[0] for kernel in KERNELS} | {"conv_2d"}
    kernels = firmware.RUNTIME / "kernels"
    return tuple(sorted([*kernels.glob("*.c"), *(path for name in folders for path in kernels.glob(f"{name}/*.c"))]))


@functools.cache
def _host() -> ctypes.CDLL:
    folder = firmware.new_folder()
    kernels = (path for path in sources() if path.name != "table.c")  # which names all kernels
    flags = ["-std=c11", "-O3", "-fPIC", "-DNEUTRON_PORTABLE_ONLY", *firmware.INCLUDES]
    objects = compiled(folder, "gcc", flags, [HERE / "random_calls.c", *kernels])
    subprocess.run(["gcc", "-shared", "-o", "random_calls.so", *objects], cwd=folder, check=True)
    loaded = ctypes.CDLL(str(folder / "random_calls.so"))
    loaded.random_call.restype = ctypes.c_uint32
    loaded.random_call.argtypes = [ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p]
    return loaded


def on_host(kernel: str, first: int, count: int) -> Checksums:
    """Checksums of what the portable kernel leaves behind."""
    room = (ctypes.c_uint8 * (2 * ROOM))()
    ends = [ctypes.addressof(room) + ROOM, ctypes.addressof(room) + 2 * ROOM]
    call = _host().random_call
    return np.array([call(KERNELS.index(kernel), first + i, *ends) for i in range(count)], np.uint32)


def on_board(
    kernels: Sequence[str], first: int, count: int, build: tuple[str, ...], board: Board, compiler: str
) -> dict[str, Checksums]:
    """The same of the kernels for a board, compiled with these flags."""
    programs = (HERE / "random_calls_main.c", HERE / "random_calls.c", HERE / "board.c")
    program = firmware.image(firmware.library(build, compiler, sources(), board), programs, board=board)
    cases = b"".join(np.array([KERNELS.index(kernel), first, count], np.uint32).tobytes() for kernel in kernels)
    done = firmware.execute(program, {"cases": cases})
    assert done.exit_code == 0, done.console
    results = np.frombuffer(done.files["results"], np.uint32).reshape(len(kernels), count)
    return dict(zip(kernels, results, strict=True))


def compare(
    kernels: Sequence[str],
    first: int,
    count: int,
    build: tuple[str, ...] = firmware.SIZE,
    board: Board = CORTEX_M33,
    compiler: str = "gcc",
) -> None:
    """Fails where a call differs, or is none."""
    got = on_board(kernels, first, count, build, board, compiler)
    for kernel in kernels:
        expect_portable(kernel, first, got[kernel])


def expect_portable(kernel: str, first: int, got: Checksums) -> None:
    """Fails where a call from number ``first`` on differs from the portable kernel's, or is none."""
    want = on_host(kernel, first, got.size)
    missing = {first + i: NO_CALL[value] for i, value in enumerate(want.tolist()) if value in NO_CALL}
    assert not missing, f"{kernel}: {missing}"
    different = (first + np.flatnonzero(want != got)).tolist()
    assert not different, f"{kernel}: calls {different} differ from the portable kernel's"
