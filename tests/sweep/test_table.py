# SPDX-License-Identifier: BSD-3-Clause
"""The table of a sweep: claims, interrupts, two processes, other tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from openneutron.errors import InvalidOptionError
from openneutron.features.sweep import Row, opened
from openneutron.features.sweep.run import RUNNING, is_running, me

IDENTITY = {"model": "net", "hash of the model": "12ab"}


def test_a_point_is_computed_once(tmp_path: Path) -> None:
    with opened(tmp_path / "t.sqlite", IDENTITY) as table:
        assert table.claim("a")
        assert not table.claim("a")
        table.finish("a", Row("done", {"sram_bytes": 3}))
        assert not table.claim("a")
        assert table.claim("b")
        table.release("b")
        assert table.claim("b")
    with opened(tmp_path / "t.sqlite", IDENTITY) as table:
        assert table.rows() == {"a": Row("done", {"sram_bytes": 3}), "b": Row(RUNNING, {})}


CLAIM = """
import sys
from pathlib import Path
from openneutron.features.sweep import opened
with opened(Path(sys.argv[1]), {"model": "net", "hash of the model": "12ab"}) as table:
    print(table.claim("a"), flush=True)
    sys.stdin.read()
"""


def test_a_point_of_a_process_that_was_killed_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    command = [sys.executable, "-c", CLAIM, str(path)]
    with opened(path, IDENTITY) as table:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None and other.stdout.readline() == "True\n"
            assert not table.claim("a")
            other.kill()
            other.wait()
        assert table.claim("a")


def test_owners_are_told_by_their_start_too() -> None:
    node, pid, started = me().rsplit(" ", 2)
    assert is_running(me())
    assert not is_running(f"{node} {pid} {int(started) - 1}")
    assert is_running(f"another-{node} {pid} {started}")


def test_the_table_of_another_sweep_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with opened(path, IDENTITY):
        pass
    with pytest.raises(InvalidOptionError) as caught, opened(path, IDENTITY | {"hash of the model": "34cd"}):
        pass
    assert str(caught.value) == (
        f"table: '{path}' is the table of another sweep: its hash of the model is '12ab', here it is '34cd'. Choose another file "
        "with --table."
    )


def test_another_file_is_refused(tmp_path: Path) -> None:
    import sqlite3

    text, other = tmp_path / "text.sqlite", tmp_path / "other.sqlite"
    text.write_text("no database at all, but long enough to be read as the header of one " * 3)
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    messages = {
        text: f"table: '{text}' can't be used: file is not a database. Choose another file with --table.",
        other: f"table: '{other}' is a SQLite file, and no table of a sweep of this version. Choose another file with --table.",
    }
    for path, message in messages.items():
        with pytest.raises(InvalidOptionError) as caught, opened(path, IDENTITY):
            pass
        assert str(caught.value) == message
