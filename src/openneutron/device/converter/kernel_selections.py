# SPDX-License-Identifier: BSD-3-Clause
"""Kernel selections as C files: write those of compiled programs, and read them back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from openneutron import __version__, targets
from openneutron.errors import InvalidOptionError, InvalidProgramError
from openneutron.isa.kernel_selection import KernelSelection, called_kernels, merge, parse
from openneutron.isa.microcode import Program
from openneutron.options import EIQ

SUFFIX = "_kernel_selection.c"

COMPILER = f"OpenNeutron {__version__}"
"""The name and version of this compiler, which a kernel selection states as the compiler that wrote it."""


def selection_of(programs: Iterable[Program]) -> KernelSelection:
    """Return the kernels that these programs call. Raises InvalidProgramError where one is damaged or not a program."""
    return KernelSelection(COMPILER, called_kernels(programs))


def default_path(result: Path) -> Path:
    """Return the path of a compiled file's selection, which is beside the file: ``net_kernel_selection.c`` for
    ``net.pte``."""
    return result.with_name(f"{result.stem}{SUFFIX}")


def check_target(name: str) -> None:
    """Raise InvalidOptionError for a target whose host links no kernels."""
    if targets.get(name).moves_tiles:
        raise InvalidOptionError(
            f"kernel selection: {name} does not use one. The controller of a Neutron-S runs kernels that are loaded with "
            "the microcode; the host core links no kernel. Leave the kernel selection out."
        )


def check(path: Path, converter: str, target: str) -> None:
    """Raise InvalidOptionError where no kernel selection (a C file that registers the needed kernels) can be written:
    the path does not name a C file, the converter is NXP's, or the target uses no selection."""
    check_target(target)
    if converter == EIQ:
        raise InvalidOptionError(
            f"kernel selection: with converter '{converter}' the kernels are NXP's. dump_kernel_selection_code of "
            "generate_neutron_compile_spec asks its converter for a file of each partition, which its own tool merges."
        )
    check_path(path)


def check_path(path: Path) -> None:
    """Raise InvalidOptionError where the path of a selection does not end in ``.c``, or is a folder."""
    if path.suffix != ".c" or path.is_dir():
        raise InvalidOptionError(f"kernel selection: it is a C file; '{path}' is none. Name a file that ends in .c.")


def selection_files(path: Path, programs: Mapping[str, Program]) -> dict[Path, bytes]:
    """Return the contents of a compiled model's selection files, by their paths.

    The file at ``path`` is for an application with the whole model: it has the kernels of all programs. Beside it is
    one file for each program, for an application with some of the programs. For ``net_kernel_selection.c`` their names
    are ``net_<name>_kernel_selection.c``.

    Raises InvalidOptionError where ``path`` can't be that of a selection.
    """
    check_path(path)
    stem = path.name.removesuffix(SUFFIX).removesuffix(".c")
    made = {path: selection_of(programs.values())}
    made |= {path.with_name(f"{stem}_{name}{SUFFIX}"): selection_of((item,)) for name, item in programs.items()}
    return {place: selection.text().encode() for place, selection in made.items()}


def read_selection(path: Path) -> KernelSelection:
    """Return the kernel selection that a file holds. Raises InvalidOptionError where the file can't be read. Raises
    InvalidProgramError where the file is no kernel selection, or where this version of the compiler wrote it and it was
    changed or truncated since."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InvalidOptionError(f"'{path}' can't be read: {error.strerror}.") from error
    found = parse(str(path), text)
    # The text that another version writes is not known here.
    if found.compiler == COMPILER and text.splitlines() != found.text().splitlines():
        raise InvalidProgramError(
            f"'{path}': a kernel selection that was changed, or is truncated; firmware would lack kernels. "
            "`openneutron compile --dump-kernel-selection` writes it anew."
        )
    return found


def merged(paths: Iterable[Path]) -> KernelSelection:
    """Return one selection with the kernels of all these files. Raises the errors of ``read_selection`` and ``merge``."""
    return merge({str(path): read_selection(path) for path in paths})
