# SPDX-License-Identifier: BSD-3-Clause
"""Every end of a command gives one line and an exit code, and never a traceback."""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openneutron.cli.ending import ended
from openneutron.errors import BudgetError, InvalidModelError, InvalidOptionError
from openneutron.features.run.command import random_array
from tests.cli.conftest import Command

Refused = Callable[..., str]

HOW = ". OPENNEUTRON_TRACEBACK=1 in the environment shows the traceback; please report it with that."
LINE = f"(test_ending.py, line {{}}){HOW}"


def raising(error: BaseException) -> Callable[[], int]:
    def command() -> int:
        raise error

    return command


RAISED = raising.__code__.co_firstlineno + 2
"""Return the line of the statement above."""


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


class Odd(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InvalidModelError("'x' is no model."), 2, "error: 'x' is no model."),
        (InvalidModelError("'a\n\x1b[31mb' does not exist."), 2, r"error: 'a\n\x1b[31mb' does not exist."),
        (BudgetError("too little", 3), 2, "error: too little"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 141, None),
        (FileNotFoundError(errno.ENOENT, "No such file", "a.npy"), 2, "error: 'a.npy': No such file."),
        (OSError(errno.EXDEV, "Other device", "a", None, b"b"), 2, "error: 'a' and 'b': Other device."),
        (OSError(errno.ENOSPC, "Disk full"), 2, "error: the output can't be written: Disk full."),
        (OSError("odd"), 2, "error: the operating system refused something: OSError: odd."),
        (MemoryError(), 2, "error: there is not enough memory on this computer: MemoryError."),
        (
            SystemExit(0),
            2,
            f"error: test_ending.py, line {RAISED}: sys.exit(0) was called before the command was done. A model must return.",
        ),
        (
            ModuleNotFoundError("no", name="rich.table"),
            2,
            "error: the package 'rich.table' is not installed. Install the package again: pip install openneutron.",
        ),
        (
            ModuleNotFoundError("no", name="openneutron.gone"),
            70,
            f"error: this is a mistake in openneutron: ModuleNotFoundError: no {LINE.format(RAISED)}",
        ),
        (
            caused(ValueError("\none\ntwo"), KeyError("first")),
            70,
            f"error: this is a mistake in openneutron: ValueError: one (caused by KeyError: 'first') {LINE.format(RAISED)}",
        ),
        (
            Odd(),
            70,
            f"error: this is a mistake in openneutron: Odd: its text can't be had (KeyError) {LINE.format(RAISED)}",
        ),
        (AssertionError(), 70, f"error: this is a mistake in openneutron: AssertionError {LINE.format(RAISED)}"),
        (
            BaseExceptionGroup("several", [ValueError("a")]),
            70,
            f"error: this is a mistake in openneutron: ExceptionGroup: several (1 sub-exception) {LINE.format(RAISED)}",
        ),
    ],
)
def test_an_exception_is_one_line(
    error: BaseException,
    code: int,
    line: str | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENNEUTRON_TRACEBACK", raising=False)
    assert ended(raising(error)) == code
    assert capsys.readouterr().err == ("" if line is None else f"{line}\n")


def test_every_exception_that_python_has(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = [kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)]
    tried = 0
    for kind in kinds:
        try:
            error = kind("one\ntwo")
        except TypeError:  # Unicode errors and groups take more
            continue
        tried += 1
        assert ended(raising(error)) in (2, 70, 130, 141)
        said = capsys.readouterr().err
        assert said.count("\n") == (0 if kind is BrokenPipeError else 1), kind
    assert tried > 60


def test_the_traceback_can_be_seen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENNEUTRON_TRACEBACK", "1")
    assert ended(raising(InvalidModelError("no"))) == 2
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last):\n") and said.endswith("\nerror: no\n")


def in_shell(line: str, folder: Path | None = None) -> tuple[int, str]:
    environment = {name: value for name, value in os.environ.items() if name != "OPENNEUTRON_TRACEBACK"}
    environment |= {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHON": sys.executable}
    command = ["bash", "-c", f"set -o pipefail; {line.replace('openneutron', '$PYTHON -m openneutron')}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    return done.returncode, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_an_output_that_is_full() -> None:
    assert in_shell("openneutron targets > /dev/full") == (
        2,
        "error: the output can't be written: No space left on device.\n",
    )
    assert in_shell("openneutron targets --json > /dev/full 2> /dev/full") == (2, "")


def test_an_output_that_nobody_reads() -> None:
    """The reader closes the pipe before a byte is written."""
    assert in_shell("(sleep 0.2; openneutron targets --json) | true") == (141, "")
    assert in_shell("openneutron targets >&-") == (0, "")


def test_a_terminal_that_lacks_characters(tmp_path: Path) -> None:
    """A model's name with letters that ASCII lacks, in a message."""
    assert in_shell(f"PYTHONIOENCODING=ascii openneutron explain {tmp_path}/größe.tflite") == (
        2,
        f"error: '{tmp_path}/gr??e.tflite' does not exist.\n",
    )


def test_files_in_the_current_folder_shadow_no_module(tmp_path: Path) -> None:
    for name in ("numpy.py", "typer.py", "csv.py"):
        (tmp_path / name).write_text("raise AssertionError")
    assert in_shell("openneutron targets > /dev/null", tmp_path) == (0, "")


INTERRUPTED = """
import sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from openneutron.cli import main
sys.exit(main(["targets"]))
"""


def test_an_interrupt_while_it_is_still_importing() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_paths_that_can_not_be_opened(refused: Refused, folder: Path) -> None:
    long = "a" * 300
    os.mkfifo(folder / "pipe.tflite")
    (folder / "loop.tflite").symlink_to("loop.tflite")
    (folder / "folder.tflite").mkdir()
    for name, what in (
        (f"{long}.tflite", "can't be read: File name too long"),
        ("pipe.tflite", "is a FIFO"),
        ("loop.tflite", "can't be read: Too many levels of symbolic links"),
        ("folder.tflite", "is a folder"),
    ):
        for command in ("compile", "explain", "run"):
            assert refused(command, name) == f"'{name}' {what}; a file is needed here."
    assert refused("compile", "/dev/null/x.tflite") == (
        "'/dev/null/x.tflite' does not exist: there is no folder '/dev/null'."
    )
    assert refused("run", "mixed.tflite", "--input", "pipe.tflite") == "'pipe.tflite' is a FIFO."
    assert refused("compile", "mixed.tflite", "-o", f"{long}.tflite") == (
        f"'{long}.tflite' can't be written: File name too long."
    )
    assert refused("compile", "mixed.tflite", "-o", "folder.tflite") == (
        "'folder.tflite' can't be written: Is a directory."
    )


@pytest.fixture
def shut(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``mixed.tflite`` and what is in the folder ``shut`` can't be read, by root either."""
    (folder / "mixed.tflite").chmod(0)
    (folder / "shut").mkdir(mode=0)
    if os.geteuid() != 0:
        return
    opens, stats = io.open, os.stat

    def refuse(path: object) -> None:
        name = str(path)
        if name.endswith("mixed.tflite") or "shut/" in name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)

    def opened(file: Any, *arguments: Any, **keywords: Any) -> Any:
        refuse(file)
        return opens(file, *arguments, **keywords)

    def looked_at(path: Any, **keywords: Any) -> os.stat_result:
        if "shut/" in str(path):
            refuse(path)
        return stats(path, **keywords)

    monkeypatch.setattr(io, "open", opened)
    monkeypatch.setattr(os, "stat", looked_at)


@pytest.mark.usefixtures("shut")
def test_files_and_folders_that_may_not_be_read(refused: Refused) -> None:
    assert refused("compile", "mixed.tflite") == "'mixed.tflite' can't be read: Permission denied."
    assert refused("compile", "shut/x.tflite") == (
        "'shut/x.tflite' can't be read: Permission denied; a file is needed here."
    )


def test_a_result_whose_name_is_as_long_as_names_can_be(openneutron: Command, folder: Path) -> None:
    name = "ä" * 124 + ".tflite"
    assert openneutron("compile", "mixed.tflite", "-o", name, "-q").code == 0
    assert (folder / name).exists()


@pytest.mark.parametrize(
    ("shape", "why"),
    [((1, -1, 4), "an extent is negative"), ((2**40, 4), "that takes 35,184,372,088,832 bytes of this computer's ")],
)
def test_random_inputs_of_no_size(shape: tuple[int, ...], why: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        random_array(np.random.default_rng(0), np.dtype(np.int8), shape)
    listed = ",".join(map(str, shape))
    assert str(caught.value).startswith(f"--random: there are no random values of int8[{listed}]: {why}")


def test_what_can_be_refused_is_refused_before_pytorch_is_loaded(folder: Path) -> None:
    """torch can't be imported here; a command that asked for it would name it."""
    (folder / "net.py").write_text("import torch\nif True:\n    def net(): ...\n")
    (folder / "broken.py").write_text("x = = 1\n")
    (folder / "empty").mkdir()
    cases = {
        ("explain", "net.py:nett"): "'net.py' has no function 'nett'.",
        ("explain", "broken.py:net"): "'broken.py:net', line 1: SyntaxError: invalid syntax",
        ("explain", "cifarnett"): "there is no built-in model 'cifarnett'. Did you mean 'cifarnet'?",
        ("compile", "net.py:net", "--calibration", "none"): "--calibration: 'none' does not exist.",
        ("compile", "net.py:net", "--calibration", "empty"): (
            "--calibration: there are no samples in 'empty': no .png, .jpg, .jpeg, .bmp, .wav, .npy files, nor class folders of them."
        ),
        ("compile", "net.py:net", "--weights", "w.pt"): "--weights: 'w.pt' does not exist.",
        ("compile", "net.py:net", "-o", "no/x.pte"): "'no/x.pte' can't be written: No such file or directory.",
        ("compile", "net.py:net", "--intermediates", "net.py"): "'net.py' can't be used as a folder: File exists.",
        ("explain", "net.py:net"): "PyTorch models take torch, torchao, executorch; 'torch' is not installed: pip",
    }
    program = (
        "import sys, json\n"
        "for name in ('torch', 'torchao', 'executorch'): sys.modules[name] = None\n"
        "from openneutron.cli import main\n"
        "for case in json.loads(sys.argv[1]): print(main(case), file=sys.stderr)\n"
    )
    given = json.dumps(list(cases))
    done = subprocess.run(
        [sys.executable, "-c", program, given], capture_output=True, text=True, check=False, cwd=folder
    )
    lines = done.stderr.splitlines()
    assert lines[1::2] == ["2"] * len(cases), done.stderr
    for line, wanted in zip(lines[::2], cases.values(), strict=True):
        assert line.startswith(f"error: {wanted}")
