# SPDX-License-Identifier: BSD-3-Clause
"""Running the suite, or some of its files and tests, in this process."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import executorch.backends.test.suite.operators as operators
import pytest

from tests.suites.executorch_operators.plugin import Recorder
from tests.suites.executorch_operators.records import Test

FOLDER = Path(operators.__path__[0])


def run(names: Sequence[str] = (), tell: Callable[[Test], None] | None = None) -> list[Test]:
    """The records of the tests in these files (``conv3d``) or of these tests (``conv3d::test_conv3d_basic``); of all tests
    without names. ``tell`` gets each record as soon as its test has ended."""
    found: list[Test] = []

    def keep(test: Test) -> None:
        found.append(test)
        if tell is not None:
            tell(test)

    chosen = [_path(name) for name in names] or [str(FOLDER)]
    with tempfile.TemporaryDirectory() as folder:
        options = ["-c", os.devnull, "--rootdir", folder, "-p", "no:cacheprovider", "-p", "no:terminal"]
        pytest.main([*options, *chosen], plugins=[Recorder(keep)])
    return found


def _path(name: str) -> str:
    file, _, test = name.partition("::")
    return f"{FOLDER / f'test_{file}.py'}{f'::{test}' if test else ''}"
