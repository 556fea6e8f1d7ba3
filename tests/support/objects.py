# SPDX-License-Identifier: BSD-3-Clause
"""Compile C sources once for all tests and all processes of a run.

Many tests build the driver and the kernels, each with other flags. Most of the objects are the same nonetheless: a
definition such as ``NEUTRON_MAX_WORK`` changes the preprocessed text of one of a hundred sources.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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


@dataclass(slots=True)
class _Call:
    """A call of a compiler that has been made.

    ``definitions`` are those that ``files``, which the compiler read, name. ``text`` is a digest of the preprocessed text,
    once it has been compared with another call's. ``made`` is the name of the folder with the object.
    """

    compiler: str
    flags: list[str]
    source: str
    definitions: list[str]
    files: list[str]
    text: str
    made: str

    def has_text_of(self, flags: Sequence[str], source: Path) -> bool:
        """Return whether a call with these flags has the same text because it differs in definitions alone that nothing names:
        neither a file that the compiler reads, nor the value of another definition."""
        same = self.source == str(source) and _without_definitions(self.flags) == _without_definitions(flags)
        return same and _named(_definitions(flags), self.files) == self.definitions


def _definitions(flags: Sequence[str]) -> list[str]:
    return [flag for flag in flags if flag.startswith(("-D", "-U"))]


def _without_definitions(flags: Sequence[str]) -> list[str]:
    return [flag for flag in flags if not flag.startswith(("-D", "-U"))]


def _kept(compiler: str, flags: Sequence[str], source: Path) -> Path:
    """Return the folder of all processes with the object of a source, which the first call compiles.

    The headers are those of the checkout, which no test changes.
    """
    program = str(Path(required(compiler)).resolve())
    others = [flag for flag in flags if not flag.startswith(TEXT_FLAGS)]
    folder = built_once(f"objects-{_digest(program, *others, source.stem, source.read_text())}", _no_calls)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        calls = {path: _Call(**json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))}
        found = next((call for call in calls.values() if call.has_text_of(flags, source)), None)
        if found is None:
            found = _compared(folder, calls, compiler, flags, source)
            _write(folder / f"{len(calls)}.json", found)
    return folder / found.made


def _compared(folder: Path, calls: dict[Path, _Call], compiler: str, flags: Sequence[str], source: Path) -> _Call:
    """Return a new call, with the object of the call that has the same preprocessed text, or one that is compiled now.

    No text is made for the first call, with which there is nothing to compare.
    """
    text, files = _text(compiler, flags, source) if calls else ("", [])
    made = ""
    for path, call in calls.items():
        if not call.text and Path(call.source).exists():
            call.text, _ = _text(call.compiler, call.flags, Path(call.source))
            _write(path, call)
        made = made or (call.made if call.text == text else "")
    if not made:
        made = str(len(calls))
        (folder / made).mkdir(exist_ok=True)  # a compilation that failed has left it
        _, files = _reading([compiler, *flags, "-c", str(source), "-o", str(folder / made / f"{source.stem}.o")])
    return _Call(compiler, list(flags), str(source), _named(_definitions(flags), files), files, text, made)


def _write(path: Path, call: _Call) -> None:
    """Write a call. A process that ends meanwhile leaves what was there."""
    made = path.with_suffix(".new")
    made.write_text(json.dumps(asdict(call)))
    made.replace(path)


def _text(compiler: str, flags: Sequence[str], source: Path) -> tuple[str, list[str]]:
    """Return a digest of a source's preprocessed text, and the files of which it is made."""
    lines = () if any(flag.startswith("-g") for flag in flags) else ("-P",)
    text, files = _reading([compiler, *flags, "-E", *lines, str(source)])
    return _digest(text), files


def _reading(command: Sequence[str]) -> tuple[str, list[str]]:
    """Run a compiler, and return what it prints and the files that it reads."""
    with tempfile.NamedTemporaryFile(suffix=".d") as read:
        printed = _run([*command, "-MD", "-MF", read.name])
        return printed, Path(read.name).read_text().partition(": ")[2].replace("\\\n", " ").split()


def _no_calls(_folder: Path) -> None:
    """Leave the folder of a source's calls empty."""


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
