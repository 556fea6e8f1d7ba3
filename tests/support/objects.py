# SPDX-License-Identifier: BSD-3-Clause
"""Compile C sources once for all tests and all processes of a run.

Many tests build the driver and the kernels, each with other flags. Most of the objects are the same nonetheless: a
definition such as ``NEUTRON_MAX_WORK`` changes the preprocessed text of one of a hundred sources.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.built_once import built_once
from tests.support.tools import required

TEXT_FLAGS = ("-D", "-I", "-U")
"""Flags that change the preprocessed text of a source, and through it alone the object."""


def compiled(folder: Path, compiler: str, flags: Sequence[str], sources: Sequence[str | Path]) -> list[Path]:
    """Return the objects of C sources in a folder, each with the file that ``-fstack-usage`` writes beside it.

    Two calls share an object where compiler, other flags than definitions, and preprocessed text are the same. Raises
    AssertionError, with the compiler's words, where a source does not compile, and where two have one name.
    """
    made = []
    for source in map(Path, sources):
        kept = _kept(compiler, flags, source)
        for path in sorted(kept.glob(f"{source.stem}.*")):
            shutil.copy(path, folder)
        made.append(folder / f"{source.stem}.o")
    assert len(set(made)) == len(made), "two sources have one name"
    return made


def _kept(compiler: str, flags: Sequence[str], source: Path) -> Path:
    """Return the folder of all processes with the object of a source, which the first call compiles."""
    program = str(Path(required(compiler)).resolve())
    others = [flag for flag in flags if not flag.startswith(TEXT_FLAGS)]
    digest = _digest(program, *others, source.stem, _text(compiler, flags, source))

    def build(folder: Path) -> None:
        _run([compiler, *flags, "-c", str(source), "-o", str(folder / f"{source.stem}.o")])

    return built_once(f"object-{digest}", build)


def _text(compiler: str, flags: Sequence[str], source: Path) -> str:
    """Return a digest of a source's preprocessed text, for which the first call of all processes starts the compiler.

    The headers are those of the checkout, which no test changes.
    """
    program = str(Path(required(compiler)).resolve())
    lines = () if any(flag.startswith("-g") for flag in flags) else ("-P",)

    def build(folder: Path) -> None:
        (folder / "digest").write_text(_digest(_run([compiler, *flags, "-E", *lines, str(source)])))

    return (
        built_once(f"text-{_digest(program, *flags, str(source), source.read_text())}", build) / "digest"
    ).read_text()


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:24]


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr[-4000:]}"
    return done.stdout
