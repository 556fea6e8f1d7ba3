# SPDX-License-Identifier: BSD-3-Clause
"""The build systems of bundles, and the README's words about them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Port:
    """A build system of a bundle.

    Below ``templates/<name>``, ``files`` has the build system's files at their places in the bundle and ``BUILD.md`` the
    README's part about building. ``table`` are the README's rows about the files.
    """

    name: str
    words: str
    table: str
    memory: str
    options: str
    """The place where options are given."""
    executorch: str
    """The template of the README's part about ExecuTorch's own runtime."""
    next_step: str
    """The command to type next; ``{folder}`` is the bundle's."""


CORTEX_M33 = Port(
    name="cortex_m33",
    words=" for a Cortex-M33 with a GNU toolchain and CMake",
    table="| `port/` | toolchain file, start code, linker script and semihosting for QEMU's mps2-an505 |",
    memory="The example prints the used memory. The build ends with a table of flash, SRAM and stack of the linked code.",
    options="given to CMake as `-DNAME=VALUE`",
    executorch="cortex_m33/EXECUTORCH.md",
    next_step="cmake -S {folder} -B {folder}/build && cmake --build {folder}/build --target run",
)

ZEPHYR = Port(
    name="zephyr",
    words=" as a Zephyr module",
    table="| `zephyr/` | the module: `module.yml`, `CMakeLists.txt`, `Kconfig`, Zephyr's clock for the driver |\n"
    "| `samples/selfcheck/` | an application that checks the model |",
    memory="Zephyr's targets `rom_report` and `ram_report` print the sizes of the linked code.",
    options="given in `prj.conf` as `CONFIG_NAME=VALUE`",
    executorch="EXECUTORCH.md",
    next_step="west build -b BOARD {folder}/samples/selfcheck",
)

MCUXPRESSO = Port(
    name="mcuxpresso",
    words=" as a component of the MCUXpresso SDK",
    table="| `mcux/` | the component: `module.yml`, `CMakeLists.txt`, `Kconfig` |",
    memory="The SDK's build ends with the used part of each memory region of the linked code.",
    options="given in `prj.conf` as `CONFIG_NAME=VALUE`",
    executorch="EXECUTORCH.md",
    next_step="west build -b BOARD {folder}/example --toolchain armgcc -Dcore_id=CORE",
)

PORTS = {port.name: port for port in (CORTEX_M33, ZEPHYR, MCUXPRESSO)}
"""By name, the default first."""
