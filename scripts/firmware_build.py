# SPDX-License-Identifier: BSD-3-Clause
"""The Cortex-M33 library as each compiler and level makes it: objects, what they need from outside, linked sizes.

Flags come from the toolchain files in runtime/ports/cortex_m33, so that what is measured is what users build.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from openneutron.errors import MissingToolError

ROOT = Path(__file__).parents[1]
RUNTIME = ROOT / "runtime"
PORT = RUNTIME / "ports" / "cortex_m33"

WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror")
INCLUDES = tuple(f"-I{RUNTIME / folder}" for folder in ("include", "kernels", "driver"))
LIBRARY = (
    *("-DNDEBUG", "-DNO_HEAP_USAGE=1", "-std=gnu99"),
    *("-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Wno-overlength-strings", "-Werror"),
)
"""What CMakeLists.txt adds for a microcontroller with OPENNEUTRON_WERROR; tests/firmware/test_page.py compares."""

API = (
    "neutronInit",
    "neutronGetModelContextSize",
    "neutronModelPrepare",
    "neutronRunBlocking",
    "neutronModelUnprepare",
)
"""The functions that an application with a model calls."""


@dataclass(frozen=True, slots=True)
class Build:
    """A compiler and a level of optimization."""

    compiler: str
    level: str

    def __str__(self) -> str:
        return f"{self.compiler} {self.level}"


BUILDS = tuple(Build(compiler, level) for compiler in ("gcc", "clang") for level in ("-Os", "-O2"))

COMMANDS = {"gcc": "arm-none-eabi-gcc", "clang": "clang"}
TOOLCHAINS = {"gcc": "toolchain.cmake", "clang": "toolchain_clang.cmake"}
TYPES = {"-Os": "MinSizeRel", "-O2": "Release"}
"""CMake's build type of each level."""


@dataclass(frozen=True, slots=True)
class Library:
    """The objects of one build in ``folder``, beside each a .su file with its functions' frames."""

    build: Build
    folder: Path
    objects: tuple[Path, ...]
    sources: Mapping[str, Path]
    """The source of each object, by the object's name."""


@dataclass(frozen=True, slots=True)
class Image:
    """A linked program that is the library alone, what nothing calls left out."""

    path: Path
    sections: tuple[tuple[str, str, int], ...]
    """(section, object's name, bytes) of everything in it that goes to flash or RAM, in the linker's order."""

    def bytes_of(self, *prefixes: str) -> int:
        """All bytes of sections whose names start with one of these."""
        return sum(size for section, _, size in self.sections if section.startswith(prefixes))


TOOLS = (*COMMANDS.values(), "arm-none-eabi-nm", "arm-none-eabi-objdump")
"""The commands without which nothing here can be built."""


def missing_tools() -> list[str]:
    """Return the commands of ``TOOLS`` that are not on the path."""
    return [name for name in TOOLS if shutil.which(name) is None]


def version(compiler: str) -> str:
    """``arm-none-eabi-gcc 12.2.1``: name and version of a compiler that is there."""
    option = "-dumpfullversion" if compiler == "gcc" else "-dumpversion"
    return f"{COMMANDS[compiler]} {run(COMMANDS[compiler], option).strip()}"


def run(*command: str | Path, folder: Path | None = None) -> str:
    """Return the output of a command. Raises MissingToolError, with the output, where the command is absent or fails."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
        )
    except FileNotFoundError:
        raise MissingToolError(
            f"firmware: {command[0]} is not on the path. `make tools` installs what builds for the Cortex-M33."
        ) from None
    if done.returncode != 0:
        raise MissingToolError(
            f"firmware: {command[0]} ended with exit code {done.returncode}. It said:\n{done.stderr[-4000:]}"
        )
    return done.stdout


def machine_flags(compiler: str) -> list[str]:
    """The flags of a compiler's toolchain file."""
    line: str
    (line,) = re.findall(r'^set\(CMAKE_C_FLAGS_INIT "(.*)"\)$', (PORT / TOOLCHAINS[compiler]).read_text(), re.MULTILINE)
    if compiler == "gcc":
        return line.split()
    headers = Path(run(COMMANDS["gcc"], "-print-file-name=../include/string.h").strip()).resolve().parent
    return ["--target=arm-none-eabi", *line.replace("${NEUTRON_LIBC_INCLUDE}", str(headers)).split()]


def flags_of(build: Build) -> list[str]:
    """Return the flags with which CMake compiles the library."""
    return [*machine_flags(build.compiler), build.level, *LIBRARY, *INCLUDES]


def library_sources() -> list[Path]:
    """Driver, kernels and port."""
    kernels = RUNTIME / "kernels"
    return sorted([*RUNTIME.glob("driver/*.c"), *kernels.glob("*.c"), *kernels.glob("*/*.c"), *PORT.glob("*.c")])


def compile_library(build: Build, folder: Path, *definitions: str) -> Library:
    """The library's objects in a folder of their own. Raises MissingToolError."""
    folder.mkdir(parents=True)
    sources = library_sources()
    named = {f"{path.stem}.o": path for path in sources}
    assert len(named) == len(sources), "two sources have one name"
    run(COMMANDS[build.compiler], *flags_of(build), *definitions, "-c", *sources, folder=folder)
    return Library(build, folder, tuple(folder / name for name in named), named)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="openneutron-firmware-")


@cache
def libraries() -> Mapping[Build, Library]:
    """Every build, compiled once and kept until Python ends, as many at once as there are processors.

    Raises MissingToolError.
    """
    folder = Path(_folder().name)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(lambda build: compile_library(build, folder / str(build).replace(" ", "")), BUILDS)
        return dict(zip(BUILDS, made, strict=True))


def needed_symbols(library: Library) -> set[str]:
    """Return the symbols that the objects need from outside of the library."""
    listed = run("arm-none-eabi-nm", *library.objects)
    symbols = re.findall(r"^[0-9a-f ]{8} (\w) (\S+)$", listed, re.MULTILINE)
    defined = {name for kind, name in symbols if kind not in "Uw"}
    return {name for kind, name in symbols if kind in "Uw"} - defined


def link(library: Library, name: str, selection: str = "", calls: Iterable[str] = API) -> Image:
    """The library linked with what ``calls`` needs of it, under the text of a kernel selection; no startup code in it."""
    folder = library.folder
    objects = list(library.objects)
    if selection:
        (folder / f"{name}_kernel_selection.c").write_text(selection)
        run(
            COMMANDS[library.build.compiler],
            *flags_of(library.build),
            "-c",
            f"{name}_kernel_selection.c",
            folder=folder,
        )
        objects.insert(0, folder / f"{name}_kernel_selection.o")
    path, listing = folder / f"{name}.elf", folder / f"{name}.map"
    roots = list(calls)
    command = [
        COMMANDS["gcc"],
        "-mcpu=cortex-m33",
        "-mthumb",
        "--specs=nano.specs",
        "-nostartfiles",
        "-Wl,--gc-sections",
    ]
    command += [f"-Wl,--entry={roots[0]}", *(f"-Wl,--undefined={root}" for root in roots), f"-Wl,-Map={listing}"]
    run(*command, *objects, "-o", path)
    return Image(path, _linked_sections(listing.read_text()))


_SECTION = re.compile(r"^ (\.\S+)\s+0x([0-9a-f]+)\s+0x([0-9a-f]+) (\S+)$", re.MULTILINE)
_LOADED = (".text", ".rodata", ".ARM.ex", ".data", ".bss")


def _linked_sections(listing: str) -> tuple[tuple[str, str, int], ...]:
    """The input sections that a GNU ld map file says are in the image."""
    kept = listing.partition("\nLinker script and memory map\n")[2]
    kept = re.sub(r"^( \.\S+)\n +0x", r"\1 0x", kept, flags=re.MULTILINE)  # long names have a line of their own
    found = []
    for section, _, size, origin in _SECTION.findall(kept):
        member = re.search(r"\(([^)]*)\)$", origin)
        if section.startswith(_LOADED) and int(size, 16):
            found.append((section, member[1] if member else Path(origin).name, int(size, 16)))
    return tuple(found)
