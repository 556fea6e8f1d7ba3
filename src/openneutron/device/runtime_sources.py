# SPDX-License-Identifier: BSD-3-Clause
"""The runtime's own files that a set of kernels needs: driver, headers, those kernels and no others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from openneutron.errors import MissingToolError
from openneutron.isa import rows

OTHER_MACHINES = re.compile(r"_avx[0-9a-z]*\.c$")
"""Variants of kernels for the host."""

PATTERNS = ("include/*.h", "driver/*.[ch]", "delegate/*", "ports/cortex_m33/*.[ch]")
ALWAYS = ("kernels/check.c", "kernels/selection.h")
TABLE = "table.c"
"""All kernels: a selection takes its place."""

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def runtime_folder() -> Path:
    """Return the folder with the runtime's sources: inside the installed package, or in the tree.

    Raises MissingToolError where there is neither.
    """
    package = Path(__file__).parents[1]
    for folder in (package / "_runtime", package.parents[1] / "runtime"):
        if (folder / "driver").is_dir():
            return folder
    raise MissingToolError(
        f"export: the runtime's sources are not in {package / '_runtime'}. Install the package again."
    )


def sources_of(kernels: Iterable[str]) -> dict[str, bytes]:
    """Return the files that a build with these kernels and variants needs, the ExecuTorch delegate and the port for
    Cortex-M33, by their path from ``runtime/``.

    ``kernels``: names such as ``softmax_s8`` and ``compare_s8:less``. Of the kernels' folders, sources of other kernels and of
    other machines are left out, and headers are those that are included.
    """
    folder = runtime_folder()
    wanted = {kernel.partition(":")[0] for kernel in kernels}
    wanted |= {part for name in wanted for part in rows.run_by(name)}
    files = [path for pattern in PATTERNS for path in folder.glob(pattern)]
    files += [folder / name for name in ALWAYS]
    files += [path for path in folder.glob("kernels/*/*.c") if _kernel_of(path.stem) in wanted and _is_ours(path)]
    found: dict[str, bytes] = {}
    waiting = sorted(files)
    while waiting:
        path = waiting.pop()
        name = path.relative_to(folder).as_posix()
        if name in found:
            continue
        found[name] = path.read_bytes()
        for header in _INCLUDE.findall(found[name].decode()):
            included = _header(folder, path, header)
            if included is not None:
                waiting.append(included)
                waiting += _implementations(included)
    return dict(sorted(found.items()))


def _kernel_of(stem: str) -> str | None:
    """Return the kernel that a source belongs to: its own name, or that of the kernel whose variant it is."""
    names = [row.name for row in rows.KERNELS if stem == row.name or stem.startswith(f"{row.name}_")]
    return max(names, key=len, default=None)


def _is_ours(path: Path) -> bool:
    return path.name != TABLE and OTHER_MACHINES.search(path.name) is None


def _header(folder: Path, source: Path, name: str) -> Path | None:
    """Return the file that a source includes, searched as the build does; None where it is no file of the runtime."""
    for place in (source.parent, folder / "include", folder / "kernels", folder / "driver"):
        path = place / PurePosixPath(name)
        if path.is_file():
            return path
    return None


def _implementations(header: Path) -> list[Path]:
    """Return the sources beside a header that belong to no kernel: those with its functions.

    In a kernel's folder all of them, in the folder of all kernels those that are named after the header.
    """
    if header.parent.name in ("include", "driver"):
        return []
    beside = [path for path in sorted(header.parent.glob("*.c")) if _kernel_of(path.stem) is None and _is_ours(path)]
    if header.parent.name != "kernels":
        return beside
    return [path for path in beside if path.stem == header.stem]
