# SPDX-License-Identifier: BSD-3-Clause
"""Objects that are exempt from garbage collection for a time."""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import subprocess
import sys

import pytest

from openneutron.device.third_party import needs_pytorch


def ran(code: str) -> None:
    """Run code in a process of its own, which has few objects to count: the objects of this one are millions."""
    imports = "import gc\nfrom openneutron.device.third_party import older_objects_kept\n"
    done = subprocess.run([sys.executable, "-c", imports + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_older_objects_are_exempt_for_the_block_alone() -> None:
    ran("""
assert gc.get_freeze_count() == 0
try:
    with older_objects_kept():
        assert gc.get_freeze_count() > 0
        with older_objects_kept():
            pass
        assert gc.get_freeze_count() > 0
        raise KeyError
except KeyError:
    assert gc.get_freeze_count() == 0
else:
    raise AssertionError("no error reached the caller")
""")


def test_the_exemptions_of_a_process_stay() -> None:
    ran("""
gc.freeze()
count = gc.get_freeze_count()
with older_objects_kept():
    pass
assert 0.99 * count < gc.get_freeze_count() <= count
""")


def test_a_block_that_imports_nothing_counts_no_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting a million exempted objects takes 50 ms, and an evaluation enters such a block for each sample."""
    counts: list[int] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counts.append(1) or 0)
    with needs_pytorch("it takes"):
        pass
    assert counts == []
    monkeypatch.delitem(sys.modules, "this", raising=False)
    with contextlib.redirect_stdout(io.StringIO()), needs_pytorch("it takes"):
        importlib.import_module("this")
    assert counts == [1]
