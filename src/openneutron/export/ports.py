# SPDX-License-Identifier: BSD-3-Clause
"""What each build system expects of a bundle: its files, and what the README says of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Port:
    """A way to build a bundle.

    ``files`` are templates by the place they go to; ``build`` is the README's part about building, ``table`` its rows about files.
    """

    name: str
    files: dict[str, str]
    build: str
    words: str
    table: str
    memory: str
    next_step: str
    """What to type next; ``{folder}`` is the bundle's."""


CORTEX_M33 = Port(
    name="cortex_m33",
    files={
        "CMakeLists.txt": "cortex_m33/CMakeLists.txt",
        **{
            f"port/{name}": f"cortex_m33/{name}"
            for name in ("board.c", "board.h", "memory.cmake", "mps2_an505.ld", "startup.c", "toolchain.cmake")
        },
    },
    build="cortex_m33/BUILD.md",
    words=" for a Cortex-M33 with a GNU toolchain and CMake",
    table="| `port/` | toolchain file, start code, linker script and semihosting for QEMU's mps2-an505 |",
    memory="\nCode is counted once it is linked: the build ends with a table of it. The stack that a run takes is printed by the example.",
    next_step="cmake -S {folder} -B {folder}/build && cmake --build {folder}/build --target run",
)

PORTS = {port.name: port for port in (CORTEX_M33,)}
"""By name, the default first."""
