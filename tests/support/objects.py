# SPDX-License-Identifier: BSD-3-Clause
"""Compile C sources once for all tests and all processes of a run.

Many tests build the driver and the kernels, each with other flags. Most of the objects are the same nonetheless: a
definition such as ``NEUTRON_MAX_WORK`` changes the preprocessed text of one of a hundred sources.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
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

    Two calls have one text where they differ in definitions that nothing names: neither a file that the compiler reads, nor
    the value of another definition. The headers are those of the checkout, which no test changes.
    """
    program = str(Path(required(compiler)).resolve())
    definitions = [flag for flag in flags if flag.startswith(("-D", "-U"))]
    others = [flag for flag in flags if flag not in definitions]
    folder = built_once(f"text-{_digest(program, *others, str(source), source.read_text())}", _no_texts)
    for path in folder.glob("*.json"):
        known = json.loads(path.read_text())
        if _named(definitions, known["files"]) == known["definitions"]:
            return str(known["text"])
    lines = () if any(flag.startswith("-g") for flag in flags) else ("-P",)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        read = Path(place) / "read"
        text = _digest(_run([compiler, *flags, "-E", *lines, "-MD", "-MF", str(read), str(source)]))
        files = read.read_text().partition(": ")[2].replace("\\\n", " ").split()
        named = _named(definitions, files)
        made = Path(place) / "made"
        made.write_text(json.dumps({"definitions": named, "files": files, "text": text}))
        made.rename(folder / f"{_digest(*named)}.json")
    return text


def _no_texts(_folder: Path) -> None:
    """Leave the folder of a source's texts empty."""


def _named(definitions: Sequence[str], files: Sequence[str]) -> list[str]:
    """Return the definitions of a macro that a file names, or the value of a definition."""
    values = set(_WORD.findall(" ".join(flag.partition("=")[2] for flag in definitions)))
    return [flag for flag in definitions if (name := _macro(flag)) in values or any(name in _words(p) for p in files)]


def _macro(definition: str) -> str:
    """Return the macro's name in ``-DNAME``, ``-DNAME=VALUE``, ``-DNAME(X)=VALUE`` and ``-UNAME``."""
    name = _WORD.match(definition, 2)
    assert name, definition
    return name[0]


_WORD = re.compile(r"[A-Za-z_]\w*")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


@functools.cache
def _words(path: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_COMMENT.sub(" ", Path(path).read_text(errors="replace"))))


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:24]


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr[-4000:]}"
    return done.stdout
