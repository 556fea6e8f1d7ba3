# SPDX-License-Identifier: BSD-3-Clause
"""Compile the ExecuTorch delegate, for a wheel or on first use.

CMake runs this file by its path when it builds a wheel. No dependency of the package is installed then, so this file imports only the standard library::

    python compile_delegate.py --compiler c++ --runtime runtime --executorch .../site-packages/executorch --to FOLDER -- -s

A delegate is compiled with the headers of one ExecuTorch and linked with no library. ``delegate.py`` loads ExecuTorch's library and
the driver first: these two have the symbols that the delegate needs.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FLAGS = (
    "-DNEUTRON_JOBS",
    "-std=c++17",
    "-O2",
    "-fPIC",
    "-shared",
    "-DC10_USING_CUSTOM_GENERATED_MACROS",
    "-DET_EVENT_TRACER_ENABLED",
    "-DNEUTRON_CHECK_WEIGHTS",
    "-DNEUTRON_THREADS",
)
"""The flags of the C++ compiler. The definitions are those of executorch-config.cmake (ExecuTorch 1.5), and two of the delegate's own."""

SOURCES = ("delegate/neutron_backend.cpp", "ports/host/executorch_method.cpp")
"""The sources of the delegate and of the C interface to a method, as paths below ``runtime/``."""

HEADERS = Path("executorch")
"""The folder of the headers below ``include`` of the executorch package."""


def compile_delegate(
    command: str, runtime: Path, package: Path, path: Path, more: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Compile the delegate to ``path``, and return the exit code and output of the C++ compiler.

    ``runtime`` is the folder of the sources, ``package`` that of executorch. ``more`` has flags that follow ``FLAGS``.
    """
    include = package / "include"
    folders = (
        runtime / "include",
        runtime / "ports" / "host",
        include,
        include / HEADERS / "runtime" / "core" / "portable_type" / "c10",
    )
    sources = [str(runtime / name) for name in SOURCES]
    arguments = [command, *FLAGS, *more, *(f"-I{folder}" for folder in folders), *sources, "-o", str(path)]
    return subprocess.run(arguments, capture_output=True, text=True, errors="replace", check=False)


def file_name(version: str, package: Path) -> str:
    """Return the file name of a wheel's delegate for the executorch in the folder ``package``.

    The name has the version and a digest of the headers. So an ExecuTorch of the same version with other headers, such as a user's own
    build, does not load this delegate.
    """
    root = package / "include" / HEADERS
    digest = hashlib.sha256()
    for header in sorted(root.rglob("*.h")):
        digest.update(header.relative_to(root).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(header.read_bytes()).digest())
    return f"neutron_backend-{version}-{digest.hexdigest()[:16]}.so"


def version_beside(package: Path) -> str:
    """Return the version in the metadata beside an unpacked executorch. Raise SystemExit where there is no metadata."""
    found = next(iter(importlib.metadata.distributions(name="executorch", path=[str(package.parent)])), None)
    if found is None:
        raise SystemExit(f"delegate: there is no metadata of executorch in '{package.parent}'.")
    return found.version


def main(arguments: Sequence[str]) -> int:
    """Compile the delegate for a wheel into the folder ``--to``, from which older delegates are deleted, and return
    the compiler's exit code.

    Raises SystemExit if ``--executorch`` is no unpacked executorch, or has no metadata beside it.
    """
    options = argparse.ArgumentParser(prog="compile_delegate.py")
    options.add_argument("--compiler", required=True)
    for name in ("--runtime", "--executorch", "--to"):
        options.add_argument(name, type=Path, required=True)
    options.add_argument("flags", nargs="*")
    given = options.parse_args(arguments)
    if not (given.executorch / "include" / HEADERS).is_dir():
        raise SystemExit(f"delegate: '{given.executorch}' is no unpacked executorch: it has no {HEADERS} in include.")
    given.to.mkdir(parents=True, exist_ok=True)
    for old in given.to.glob("*.so"):
        old.unlink()
    path = given.to / file_name(version_beside(given.executorch), given.executorch)
    done = compile_delegate(given.compiler, given.runtime, given.executorch, path, given.flags)
    sys.stderr.write(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
