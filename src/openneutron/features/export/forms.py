# SPDX-License-Identifier: BSD-3-Clause
"""The package forms of exported folders: build systems, and the layouts of packages for IDEs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from openneutron.features.export import packages

Contents = Mapping[str, bytes]


def _unchanged(contents: Contents, _words: Mapping[str, str]) -> Contents:
    return contents


@dataclass(frozen=True, slots=True)
class Form:
    """A form in which ``openneutron export`` writes models.

    The folder ``templates/<name>`` has the files of the form in ``files``, at their paths in the exported folder, and the README's section
    about building in ``BUILD.md``. A file whose name ends in ``.in`` loses this ending, and its placeholders get their values. ``table`` has
    the README's table rows about these files.
    """

    name: str
    words: str
    table: str
    memory: str
    options: str
    """The place where options are given, in words."""
    next_step: str
    """The command to type next, where ``{folder}`` is the exported folder."""
    executorch: str = ""
    """The template of the README's section about ExecuTorch's own runtime; without one the folder has no delegate."""
    ports: tuple[str, ...] = ()
    """The driver's ports in the folder: ``cortex_m33`` counts cycles, ``host`` has the threads of Linux."""
    layout: str = ""
    """The README's paragraph about places other than those of its table."""
    includes: tuple[str, ...] = ()
    """Other forms whose files are part of the folder; a file of this form replaces theirs."""
    is_nxp: bool = False
    """True where the programs are those of NXP's converter, and the folder links NXP's driver, which the user has."""
    finish: Callable[[Contents, Mapping[str, str]], Contents] = _unchanged
    """The last step, which may move files and add packed ones. It gets the values of the placeholders."""


CORTEX_M33 = Form(
    name="cortex_m33",
    words=" for a Cortex-M33 with a GNU toolchain and CMake",
    table="| `port/` | toolchain file, start code, linker script and semihosting for QEMU's mps2-an505 |",
    memory="The example prints the used memory. The build ends with a table of flash, SRAM and stack of the linked code.",
    options="given to CMake as `-DNAME=VALUE`",
    executorch="cortex_m33/EXECUTORCH.md",
    ports=("cortex_m33",),
    next_step="cmake -S {folder} -B {folder}/build && cmake --build {folder}/build --target run",
    includes=("cmake",),
)

ZEPHYR = Form(
    name="zephyr",
    words=" as a Zephyr module",
    table="| `zephyr/` | the module: `module.yml`, `CMakeLists.txt`, `Kconfig`, Zephyr's clock for the driver |\n"
    "| `samples/selfcheck/` | an application that checks the model |",
    memory="Zephyr's targets `rom_report` and `ram_report` print the sizes of the linked code.",
    options="given in `prj.conf` as `CONFIG_NAME=VALUE`",
    executorch="EXECUTORCH.md",
    ports=("cortex_m33",),
    next_step="west build -b BOARD {folder}/samples/selfcheck",
)

MCUXPRESSO = Form(
    name="mcuxpresso",
    words=" as a component of the MCUXpresso SDK",
    table="| `mcux/` | the component: `module.yml`, `CMakeLists.txt`, `Kconfig` |",
    memory="The SDK's build ends with the used part of each memory region of the linked code.",
    options="given in `prj.conf` as `CONFIG_NAME=VALUE`",
    executorch="EXECUTORCH.md",
    ports=("cortex_m33",),
    next_step="west build -b BOARD {folder}/example --toolchain armgcc -Dcore_id=CORE",
)

MCXN947 = Form(
    name="mcxn947",
    words=" for the MCX N947 with CMake, Zephyr or the MCUXpresso SDK",
    table="\n".join((CORTEX_M33.table, ZEPHYR.table, MCUXPRESSO.table))
    + "\n| `port/mcxn947.ld`, `port/chip.cmake` | the memory of the chip, and an image linked for it |\n"
    "| `samples/selfcheck/boards/` | the memory and the floating-point unit of `frdm_mcxn947` for Zephyr |",
    memory="The example prints the used memory. The CMake build ends with a table of flash, SRAM and stack of the code linked for the chip.",
    options="given to CMake as `-DNAME=VALUE`, in `prj.conf` as `CONFIG_NAME=VALUE`",
    executorch="cortex_m33/EXECUTORCH.md",
    ports=("cortex_m33",),
    next_step="cmake -S {folder} -B {folder}/build && cmake --build {folder}/build --target run",
    includes=("cmake", "cortex_m33", "zephyr", "mcuxpresso"),
)

CMAKE = Form(
    name="cmake",
    words=" as a CMake package",
    table="| `CMakeLists.txt` | the library `openneutron::openneutron`, its installation, and the example |",
    memory="The tool `size` of the compiler prints the sizes of the linked code.",
    options="given to CMake as `-DNAME=VALUE`",
    executorch="cortex_m33/EXECUTORCH.md",
    ports=("cortex_m33", "host"),
    next_step="cmake -S {folder} -B {folder}/build && cmake --build {folder}/build --target run",
)

ARDUINO = Form(
    name="arduino",
    words=" as an Arduino library",
    table="| `library.properties` | the library's name and version |\n| `examples/selfcheck/` | a sketch that checks the model |",
    memory="The IDE prints the flash and the RAM of the linked sketch.",
    options="written as `#define NAME VALUE` at the top of `src/openneutron.h`",
    layout="\nIn this form the headers and sources of `include`, `model` and `src` are in `src`, the runtime is in `src/runtime`, and the "
    "example is in `examples/selfcheck`.\n",
    next_step="arduino-cli compile -b BOARD --library {folder} {folder}/examples/selfcheck",
    finish=packages.arduino_library,
)

CMSIS_PACK = Form(
    name="cmsis-pack",
    words=" as a CMSIS-Pack",
    table="| `*.pdsc`, `*.pack` | the description of the pack, and the packed files |",
    memory="The linker's map has the sizes of the linked code.",
    options="given as definitions of the project",
    next_step="cpackget add {folder}/*.pack",
    finish=packages.cmsis_pack,
)

ESP_IDF = Form(
    name="esp-idf",
    words=" as an ESP-IDF component",
    table="| `CMakeLists.txt`, `idf_component.yml` | the component |\n| `examples/selfcheck/` | a project that checks the model |",
    memory="`idf.py size` prints the sizes of the linked code.",
    options="given as compile definitions of the component",
    next_step="idf.py -C {folder}/examples/selfcheck build",
)

NXP_TABLE = "| `nxp/` | the search for NXP's driver, and the test of its release at start-up |\n"

ZEPHYR_NXP = Form(
    name="zephyr-nxp",
    words=" as a Zephyr module that links NXP's driver",
    table=NXP_TABLE + ZEPHYR.table.replace(", Zephyr's clock for the driver", ""),
    memory=ZEPHYR.memory,
    options=ZEPHYR.options,
    next_step="west build -b BOARD {folder}/samples/selfcheck -- -DNEUTRON_SDK=SDK",
    includes=("nxp",),
    is_nxp=True,
)

MCUXPRESSO_NXP = Form(
    name="mcuxpresso-nxp",
    words=" as a component of the MCUXpresso SDK that links NXP's driver",
    table=NXP_TABLE + MCUXPRESSO.table,
    memory=MCUXPRESSO.memory,
    options=MCUXPRESSO.options,
    next_step="west build -b BOARD {folder}/example --toolchain armgcc -Dcore_id=CORE",
    includes=("nxp",),
    is_nxp=True,
)

LINUX_NXP = Form(
    name="linux-nxp",
    words=" for Linux on aarch64 with NXP's driver library",
    table=NXP_TABLE
    + "| `CMakeLists.txt`, `port/` | the library, the example, and the functions that open `libNeutronDriver.so` |",
    memory="The tool `size` of the compiler prints the sizes of the linked code.",
    options="given to CMake as `-DNAME=VALUE`",
    next_step="cmake -S {folder} -B {folder}/build -DNEUTRON_SDK=SDK && cmake --build {folder}/build",
    includes=("nxp",),
    is_nxp=True,
)

_OWN_DRIVER = (CORTEX_M33, ZEPHYR, MCUXPRESSO, MCXN947, CMAKE, ARDUINO, CMSIS_PACK, ESP_IDF)
FORMS = {form.name: form for form in (*_OWN_DRIVER, ZEPHYR_NXP, MCUXPRESSO_NXP, LINUX_NXP)}
"""The forms by name, the default form first."""
