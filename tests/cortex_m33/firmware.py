# SPDX-License-Identifier: BSD-3-Clause
"""Firmware for the tests: the runtime built for a Cortex-M, linked with a program of the tests, and run in QEMU.

    program = image(library())                      # the runner of cases.py with every kernel
    program = image(library(), selection=text)      # with the kernels of a selection alone
    program = image(library(board=CORTEX_M55), board=CORTEX_M55)
    done = execute(program, {"cases": data})        # done.files["results"]

Libraries and images are built once in a test session and kept until Python ends.
"""

from __future__ import annotations

import functools
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.firmware_build import COMMANDS, Build, flags_of
from tests.cortex_m33.boards import CORTEX_M33, Board
from tests.support.objects import compiled
from tests.support.tools import required

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "runtime"
HERE = Path(__file__).parent
INCLUDES = tuple(f"-I{RUNTIME / name}" for name in ("include", "kernels", "driver"))
CORE = ("-mcpu=cortex-m33", "-mthumb", "-std=c11", "-ffunction-sections", "-fdata-sections")
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
RUNNER = (HERE / "runner.c", HERE / "board.c")
SIZE = ("-Os",)
SPEED = ("-O2",)
PORTABLE = ("-Os", "-DNEUTRON_PORTABLE_ONLY")
"""Flags of a build without the kernels for the DSP extension."""


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="openneutron-cortex-m33-")


def new_folder() -> Path:
    """A folder that lasts until Python ends."""
    return Path(tempfile.mkdtemp(dir=_folder().name))


def _run(command: list[str | Path], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


@functools.cache
def library(
    flags: tuple[str, ...] = SIZE, compiler: str = "gcc", only: tuple[Path, ...] = (), board: Board = CORTEX_M33
) -> Path:
    """Return a static library of driver and kernels, or of some sources ``only``, without a heap; its objects are beside it.
    ``flags``: a level of optimization, and what is added to the flags of the published library."""
    sources = only or (*sorted(RUNTIME.glob("driver/*.c")), *sorted(RUNTIME.glob("kernels/**/*.c")))
    return static_library(sources, (*flags[:1], *board.flags, *flags[1:]), compiler)


def static_library(sources: tuple[Path, ...], flags: tuple[str, ...], compiler: str) -> Path:
    """Return a static library of any C sources, compiled as ``library`` compiles the runtime."""
    folder = new_folder()
    required(COMMANDS["gcc"])  # links, and brings the C library along
    level, *added = flags
    published = flags_of(Build(compiler, level))
    objects = compiled(folder, required(COMMANDS[compiler]), [*published, *added], sources)
    _run([required("arm-none-eabi-ar"), "rcs", "libneutron.a", *sorted(objects)], folder)
    return folder / "libneutron.a"


@dataclass(frozen=True, slots=True)
class Image:
    """A linked program, the linker's map of it, and the board that it is for."""

    elf: Path
    map: Path
    board: Board


@functools.cache
def _object(source: Path, includes: tuple[Path, ...], board: Board) -> Path:
    """The object of a C source that is no part of the runtime."""
    folder = new_folder()
    flags = [*CORE, *board.flags, *WARNINGS, *INCLUDES, "-Os", *(f"-I{path}" for path in (HERE, *includes))]
    _run([required("arm-none-eabi-gcc"), *flags, "-c", source], folder)
    return folder / f"{source.stem}.o"


@functools.cache
def image(
    archive: Path,
    sources: tuple[Path, ...] = RUNNER,
    selection: str | None = None,
    includes: tuple[Path, ...] = (),
    board: Board = CORTEX_M33,
) -> Image:
    """A program for a board from C sources, a library for it and the text of a kernel selection, if any.

    Of newlib it takes what the C language itself needs (memcpy and the like), and no start-up code: board.c has it.
    """
    folder = new_folder()
    if selection is not None:
        sources = (*sources, folder / "kernel_selection.c")
        sources[-1].write_text(selection)
    if board.traps_unaligned:
        sources = (*sources, HERE / "bytewise_memory.c")
    objects = [_object(source, includes, board) for source in sources]
    link = [
        "-nostartfiles",
        "-Wl,--gc-sections",
        "-Wl,-Map=image.map",
        *(f"-Wl,--defsym={name}={value:#x}" for name, value in board.symbols().items()),
        f"-T{HERE / 'board.ld'}",
        "-o",
        "image.elf",
    ]
    _run([required("arm-none-eabi-gcc"), *CORE, *board.flags, *objects, archive, *link], folder)
    return Image(folder / "image.elf", folder / "image.map", board)


@dataclass(frozen=True, slots=True)
class Execution:
    """The results of a program: its exit code, the files that it read and wrote, and its output."""

    exit_code: int
    files: Mapping[str, bytes]
    console: str


def execute(program: Image, files: Mapping[str, bytes], *, count: bool = False, seconds: int = 120) -> Execution:
    """Runs a program on its board in QEMU, in a folder with these files.

    ``count``: each instruction takes one nanosecond of the machine's time (QEMU's ``-icount``), which its timers then count;
    runs take about twice as long. Fails the test where the program has not ended after ``seconds``.
    """
    command = [
        required("qemu-system-arm"),
        "-M",
        program.board.machine,
        "-display",
        "none",
        "-monitor",
        "none",
        "-serial",
        "none",
    ]
    command += ["-semihosting-config", "enable=on,target=native", "-kernel", str(program.elf)]
    command += ["-icount", "shift=0"] if count else []
    with tempfile.TemporaryDirectory(dir=_folder().name) as name:
        folder = Path(name)
        for path, data in files.items():
            (folder / path).write_bytes(data)
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=seconds)
        after = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    return Execution(done.returncode, after, done.stdout + done.stderr)
