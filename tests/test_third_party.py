# SPDX-License-Identifier: BSD-3-Clause
"""Objects that are exempt from garbage collection for a time."""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import io
import sys
from collections.abc import Iterator

import pytest

from openneutron.device.third_party import needs_pytorch, older_objects_kept


@pytest.fixture(autouse=True)
def nothing_exempt(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have nothing exempted that the test run itself has exempted, and Python's own count, which the run keeps."""
    monkeypatch.setattr(gc, "get_freeze_count", inspect.unwrap(gc.get_freeze_count))
    count = gc.get_freeze_count()
    gc.unfreeze()
    yield
    if count:
        gc.freeze()


def test_older_objects_are_exempt_for_the_block_alone() -> None:
    assert gc.get_freeze_count() == 0
    with pytest.raises(KeyError), older_objects_kept():
        assert gc.get_freeze_count() > 0
        with older_objects_kept():
            pass
        assert gc.get_freeze_count() > 0
        raise KeyError
    assert gc.get_freeze_count() == 0


def test_the_exemptions_of_a_process_stay() -> None:
    gc.freeze()
    try:
        count = gc.get_freeze_count()
        with older_objects_kept():
            pass
        # Other threads of the process may free some of these objects meanwhile.
        assert 0.99 * count < gc.get_freeze_count() <= count
    finally:
        gc.unfreeze()


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
