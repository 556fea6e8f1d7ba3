# SPDX-License-Identifier: BSD-3-Clause
"""Select the runtime's source files that a set of kernels needs: the driver, headers, and only these kernels."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from openneutron.errors import MissingToolError
from openneutron.isa import rows

OTHER_MACHINES = re.compile(r"_avx[0-9a-z]*\.c$")
"""The files of kernel variants for the host."""

PATTERNS = ("include/*.h", "driver/*.[ch]", "delegate/*", "ports/cortex_m33/*.[ch]", "ports/host/host_threads.c")
ALWAYS = ("kernels/check.c", "kernels/selection.h")
JOB_FILES = ("ports/host/host_jobs.c", "ports/host/host_products.c")
"""The files that give matrix products to NXP's driver on Linux, or compute them."""
TABLE = "table.c"
"""The file that registers all kernels; a kernel selection replaces it."""

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
    """Return the contents of the source files for a build with these kernels, by the path below ``runtime/``. The
    driver, the ExecuTorch delegate, the port for Cortex-M33 and the threads of Linux are always among them.

    ``kernels`` are names of kernels and variants, such as ``softmax_s8`` and ``compare_s8:less``. A variant has all
    sources of its kernel. Kernels that these kernels call are added. If a kernel's name has ``_job_`` in it, the
    files for matrix products on the NPU under Linux are added. The result has no sources of other kernels and of the
    host's variants of kernels. It has a kernel's headers if a source includes them.
    """
    folder = runtime_folder()
    wanted = {kernel.partition(":")[0] for kernel in kernels}
    wanted |= {part for name in wanted for part in rows.run_by(name)}
    files = [path for pattern in PATTERNS for path in folder.glob(pattern)]
    files += [folder / name for name in ALWAYS]
    files += [folder / name for name in JOB_FILES if any(map(rows.is_job, wanted))]
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
    """Return the kernel that a source file belongs to, as its main source or as a variant; None where it belongs to no
    kernel."""
    names = [row.name for row in rows.KERNELS if stem == row.name or stem.startswith(f"{row.name}_")]
    return max(names, key=len, default=None)


def _is_ours(path: Path) -> bool:
    return path.name != TABLE and OTHER_MACHINES.search(path.name) is None


def _header(folder: Path, source: Path, name: str) -> Path | None:
    """Return the path of an included header, searched in the build's order; None where the runtime has no such file."""
    for place in (source.parent, folder / "include", folder / "kernels", folder / "driver"):
        path = Path(os.path.normpath(place / PurePosixPath(name)))
        if path.is_file():
            return path
    return None


def _implementations(header: Path) -> list[Path]:
    """Return the sources in a header's folder that implement its functions and belong to no kernel.

    In the folder of one kernel these are all sources that belong to no kernel. In the folder of all kernels they are
    only the sources with the header's name.
    """
    if "kernels" not in (header.parent.name, header.parent.parent.name):
        return []
    beside = [path for path in sorted(header.parent.glob("*.c")) if _kernel_of(path.stem) is None and _is_ours(path)]
    if header.parent.name != "kernels":
        return beside
    return [path for path in beside if path.stem == header.stem]
