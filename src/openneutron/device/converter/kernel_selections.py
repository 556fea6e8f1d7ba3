# SPDX-License-Identifier: BSD-3-Clause
"""Kernel selections as files: of programs that this compiler made, and read back."""

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
"""Who writes selections, as they say it."""


def selection_of(programs: Iterable[Program]) -> KernelSelection:
    """Return the kernels that these programs call. Raises InvalidProgramError where one is damaged or not a program."""
    return KernelSelection(COMPILER, called_kernels(programs))


def default_path(result: Path) -> Path:
    """Return the path of a compiled file's selection: ``net.pte`` has ``net_kernel_selection.c`` beside it."""
    return result.with_name(f"{result.stem}{SUFFIX}")


def check_target(name: str) -> None:
    """Raise InvalidOptionError for a target whose host links no kernels."""
    if targets.get(name).moves_tiles:
        raise InvalidOptionError(
            f"kernel selection: {name} does not use one. The controller of a Neutron-S runs kernels that are loaded with "
            "the microcode; the host core links no kernel. Leave the kernel selection out."
        )


def check(path: Path, converter: str, target: str) -> None:
    """Raise InvalidOptionError where the file's name is unusable, another converter writes the file, or the target uses no selection."""
    check_target(target)
    if converter == EIQ:
        raise InvalidOptionError(
            f"kernel selection: with converter '{converter}' the kernels are NXP's. dump_kernel_selection_code of "
            "generate_neutron_compile_spec asks its converter for a file of each partition, which its own tool merges."
        )
    check_path(path)


def check_path(path: Path) -> None:
    """Raise InvalidOptionError where a selection can't be called so."""
    if path.suffix != ".c" or path.is_dir():
        raise InvalidOptionError(f"kernel selection: it is a C file; '{path}' is none. Name a file that ends in .c.")


def selection_files(path: Path, programs: Mapping[str, Program]) -> dict[Path, bytes]:
    """Return the files of a compiled model: at ``path`` the one for the application, with the kernels of all its
    programs; beside it one of each program, for applications that are put together otherwise. Of
    ``net_kernel_selection.c`` these are ``net_<name>_kernel_selection.c``.

    Raises InvalidOptionError where ``path`` can't be such a file's.
    """
    check_path(path)
    stem = path.name.removesuffix(SUFFIX).removesuffix(".c")
    made = {path: selection_of(programs.values())}
    made |= {path.with_name(f"{stem}_{name}{SUFFIX}"): selection_of((item,)) for name, item in programs.items()}
    return {place: selection.text().encode() for place, selection in made.items()}


def read_selection(path: Path) -> KernelSelection:
    """Return the selection in a file. Raises InvalidProgramError where this project did not write the file, or one that this version did
    not write as it stands; InvalidOptionError where it can't be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InvalidOptionError(f"'{path}' can't be read: {error.strerror}.") from error
    found = parse(str(path), text)
    # What another version writes is not known here.
    if found.compiler == COMPILER and text.splitlines() != found.text().splitlines():
        raise InvalidProgramError(
            f"'{path}': a kernel selection that was changed, or is truncated; firmware would lack kernels. "
            "`openneutron compile --dump-kernel-selection` writes it anew."
        )
    return found


def merged(paths: Iterable[Path]) -> KernelSelection:
    """Return one selection with the kernels of all these files. Raises as ``read_selection`` and ``merge`` do."""
    return merge({str(path): read_selection(path) for path in paths})
