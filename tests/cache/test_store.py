# SPDX-License-Identifier: BSD-3-Clause
"""The folder of a cache: whole entries or none, whatever other processes, disks and users do to it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from openneutron.device.cache import ABANDONED_SECONDS, Store, opened
from openneutron.errors import InvalidOptionError

KEY, OTHER = "0" * 64, "1" * 64


def test_what_was_put_is_there(tmp_path: Path) -> None:
    store = opened(tmp_path / "new" / "cache")
    assert store.get("program", KEY) is None
    store.put("program", KEY, b"bytes")
    assert store.get("program", KEY) == b"bytes"
    assert store.get("ranges", KEY) is None
    assert [path.name for path in store.folder.iterdir()] == [f"{KEY}.program"]


@pytest.mark.parametrize("at", [0, 25, -1], ids=["magic", "checksum", "content"])
def test_a_damaged_entry_is_absent_and_made_again(tmp_path: Path, at: int) -> None:
    store = Store(tmp_path)
    store.put("program", KEY, b"bytes")
    path = tmp_path / f"{KEY}.program"
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    assert store.get("program", KEY) is None
    store.put("program", KEY, b"bytes")
    assert store.get("program", KEY) == b"bytes"


def test_an_entry_that_was_cut_short_is_absent(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put("program", KEY, b"bytes")
    path = tmp_path / f"{KEY}.program"
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        assert store.get("program", KEY) is None, size


def test_an_entry_that_is_a_folder_is_absent(tmp_path: Path) -> None:
    (tmp_path / f"{KEY}.program").mkdir()
    store = Store(tmp_path)
    store.put("program", KEY, b"bytes")
    assert store.get("program", KEY) is None


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_an_entry_that_can_not_be_written_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(code, os.strerror(code))

    store = Store(tmp_path)
    monkeypatch.setattr(os, "fdopen", refuse)
    store.put("program", KEY, b"bytes")
    assert store.get("program", KEY) is None
    assert [*tmp_path.iterdir()] == []


def test_the_entries_used_least_recently_go(tmp_path: Path) -> None:
    content = bytes(1000)
    store = Store(tmp_path, limit_bytes=2200)
    for age, key in enumerate((OTHER, KEY)):
        store.put("program", key, content)
        os.utime(tmp_path / f"{key}.program", (100 + age, 100 + age))
    mine = tmp_path / "notes.txt"
    mine.write_bytes(bytes(5000))
    assert store.get("program", OTHER) == content
    store.put("ranges", KEY, content)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{KEY}.ranges", f"{OTHER}.program", "notes.txt"]


KILLED = """
import os, sys
from pathlib import Path
from openneutron.device.cache import Store
Path.chmod = lambda *_: os._exit(9)
Store(Path(sys.argv[1])).put("program", sys.argv[2], b"bytes")
"""


def test_a_process_killed_while_it_writes_leaves_no_entry(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), KEY], check=False)
    (left,) = tmp_path.iterdir()
    assert done.returncode == 9
    assert left.name.startswith(".")
    store = Store(tmp_path)
    assert store.get("program", KEY) is None
    store.put("program", KEY, b"bytes")
    assert left.exists()  # it may be another process's, which still writes
    old = left.stat().st_mtime - ABANDONED_SECONDS - 1
    os.utime(left, (old, old))
    store.put("program", OTHER, b"bytes")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{KEY}.program", f"{OTHER}.program"]


SEVERAL = """
import sys
from pathlib import Path
from openneutron.device.cache import Store
store = Store(Path(sys.argv[1]), limit_bytes=30_000)
for index in range(60):
    key, content = f"{index % 7:064x}", bytes([index % 7]) * 9000
    assert store.get("program", key) in (None, content)
    store.put("program", key, content)
"""


def test_two_processes_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SEVERAL, str(tmp_path)]
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 30_000


def test_a_folder_that_can_not_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    messages = {
        file: f"cache: '{file}' can't be used as a folder: File exists.",
        file / "below": f"cache: '{file}/below' can't be used as a folder: Not a directory.",
        Path("a\0b"): "cache: 'a\0b' can't be used as a folder: embedded null byte.",
    }
    for path, message in messages.items():
        with pytest.raises(InvalidOptionError) as caught:
            opened(path)
        assert str(caught.value) == message
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may read any folder
    with pytest.raises(InvalidOptionError) as refused:
        opened(tmp_path)
    assert str(refused.value) == f"cache: '{tmp_path}' can't be used as a folder: Permission denied."
