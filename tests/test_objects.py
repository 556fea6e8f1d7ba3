# SPDX-License-Identifier: BSD-3-Clause
"""Objects that the tests share are those that a compiler makes with the flags of each call."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import built_once, objects
from tests.support.runtime_builds import c_compiler

HEADER = """
/* NOT_READ is named here alone. */
#ifdef READ
#include "other.h"
#endif
"""
OTHER = """
#ifndef SIZE
#define SIZE 1
#endif
"""


def test_definitions_that_nothing_names_share_an_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(built_once.FOLDER, str(tmp_path / "built"))
    for name, text in {
        "one.h": HEADER,
        "other.h": OTHER,
        "one.c": '#include "one.h"\nint one(void) { return SIZE; }\n',
    }.items():
        (tmp_path / name).write_text(text)
    compiler, started = c_compiler(), []
    run = objects._run
    monkeypatch.setattr(objects, "_run", lambda command: (started.append(command), run(command))[1])

    def made(*flags: str) -> tuple[bytes, int]:
        """Return the object with these flags, and how often the compiler was started for it."""
        started.clear()
        (tmp_path / "objects").mkdir(exist_ok=True)
        (path,) = objects.compiled(tmp_path / "objects", compiler, flags, [tmp_path / "one.c"])
        return path.read_bytes(), len(started)

    plain, count = made("-DSIZE=2")
    assert count == 1
    assert made("-DSIZE=2", "-DNOT_READ") == (plain, 0)
    assert made("-DUNKNOWN", "-DSIZE=2", "-DNOT_READ") == (plain, 0)
    assert made("-DSIZE=READ", "-DREAD=2") == (plain, 2)
    three, count = made("-DREAD", "-DSIZE=3")
    assert three != plain and count == 2
    assert made("-DREAD", "-DSIZE=3", "-DNOT_READ") == (three, 0)
    one, count = made("-DREAD")
    assert one not in (plain, three) and count == 2
    assert made("-DREAD", "-USIZE") == (one, 1)
    assert made("-O1", "-DREAD")[1] == 1


ALONE = """
from tests.support.built_once import built_once
made = built_once("one", lambda folder: (folder / "file").touch())
assert built_once("one", lambda folder: 1 / 0) == made
print(made / "file", (made / "file").is_file())
"""


def test_a_process_alone_builds_once_and_leaves_nothing_behind(root: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != built_once.FOLDER}
    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        cwd=root,
        capture_output=True,
        text=True,
        env=environment | {"TMPDIR": str(tmp_path)},
    )
    path, made = done.stdout.split()
    assert (Path(path).is_relative_to(tmp_path), made, done.stderr) == (True, "True", "")
    assert [*tmp_path.iterdir()] == []
