# SPDX-License-Identifier: BSD-3-Clause
"""The driver's and the kernels' sources, and the flags that compile them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.tools import required

if TYPE_CHECKING:
    from openneutron.isa import Program

ROOT = Path(__file__).parents[2]


RUNTIME = ROOT / "runtime"


NARROW = "-DNEUTRON_NARROW_INTRINSICS"
"""The definition with which gcc and clang read the intrinsic functions of AVX2 alone (runtime/kernels/x86.h)."""


INCLUDES = [*(f"-I{RUNTIME / folder}" for folder in ("include", "kernels", "driver")), NARROW]


WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror"]


def c_compiler() -> str:
    return required("cc", "gcc")


def written(folder: Path, program: Program) -> list[str]:
    (folder / "microcode").write_bytes(program.microcode)
    (folder / "weights").write_bytes(program.weights)
    return [str(folder / "microcode"), str(folder / "weights")]


def driver_sources() -> list[str]:
    return [str(path) for path in sorted((RUNTIME / "driver").glob("*.c"))]


def kernel_sources() -> list[str]:
    kernels = RUNTIME / "kernels"
    return [str(path) for path in [*sorted(kernels.glob("*.c")), *sorted(kernels.glob("*/*.c"))]]


MEMORY_CHECKED = ("-std=gnu11", "-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
"""The flags of every program with the address and undefined-behaviour sanitizers, so that all of them share their objects."""


WITHOUT_HEAP = (
    *WARNINGS,
    *INCLUDES,
    "-fPIC",
    "-ffunction-sections",
    "-fdata-sections",
    "-DNEUTRON_NO_HEAP",
    "-DNEUTRON_PORTABLE_ONLY",
)
"""The flags of programs and libraries for this computer whose driver has no heap, with the portable kernels alone, so that all of
them share their objects."""
