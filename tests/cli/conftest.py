# SPDX-License-Identifier: BSD-3-Clause
"""The command in this process, and a folder with small files to give it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from openneutron.cli import main, output
from tests.support.litert_files import float_file, mixed_file


@dataclass(frozen=True, slots=True)
class Ended:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


Command = Callable[..., Ended]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with mixed.tflite and float.tflite in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mixed.tflite").write_bytes(mixed_file())
    (tmp_path / "float.tflite").write_bytes(float_file())
    return tmp_path


@pytest.fixture
def openneutron(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command in the folder, which gets no bytecode of the models in it. No step is long enough for a line on stderr, however
    busy the computer is."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(output, "WORTH_TELLING_SECONDS", math.inf)

    def run(*arguments: str) -> Ended:
        capsys.readouterr()
        code = main(arguments)
        said = capsys.readouterr()
        return Ended(code, said.out, said.err)

    return run


@pytest.fixture
def refused(openneutron: Command, folder: Path) -> Callable[..., str]:
    """Runs a command that must be refused: exit code 2, one line on stderr, nothing on stdout, no file more than before."""

    def run(*arguments: str) -> str:
        before = sorted(folder.rglob("*"))
        ended = openneutron(*arguments)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.startswith("error: ") and ended.err.endswith("\n") and "Traceback" not in ended.err
        assert sorted(folder.rglob("*")) == before
        return ended.err.removeprefix("error: ").removesuffix("\n")

    return run
