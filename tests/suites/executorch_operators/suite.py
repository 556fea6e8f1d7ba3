# SPDX-License-Identifier: BSD-3-Clause
"""Run the suite, or some of its files and tests, in this process."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import executorch.backends.test.suite.operators as operators
import pytest
from executorch.backends.test.suite.reporting import begin_test_session, complete_test_session

from tests.suites.executorch_operators.plugin import Recorder
from tests.suites.executorch_operators.records import Test

FOLDER = Path(operators.__path__[0])


SEED = 0
"""A number added to each test's own seed, which comes from its name: weights and inputs are the same in every run."""


def run(
    names: Sequence[str] = (), tell: Callable[[Test], None] | None = None, without: Collection[str] = ()
) -> list[Test]:
    """Return the records of the tests in these files (``conv3d``) or of these tests (``conv3d::test_conv3d_basic``).

    Without names all tests run. ``tell`` gets each record as soon as its test has ended; tests in ``without`` do not
    run.
    """
    found: list[Test] = []

    def keep(test: Test) -> None:
        found.append(test)
        if tell is not None:
            tell(test)

    chosen = [_path(name) for name in names] or [str(FOLDER)]
    begin_test_session(None, SEED)
    try:
        with tempfile.TemporaryDirectory() as folder:
            options = ["-c", os.devnull, "--rootdir", folder, "-p", "no:cacheprovider", "-p", "no:terminal"]
            pytest.main([*options, *chosen], plugins=[Recorder(keep, without)])
    finally:
        complete_test_session()
    return found


def _path(name: str) -> str:
    file, _, test = name.partition("::")
    return f"{FOLDER / f'test_{file}.py'}{f'::{test}' if test else ''}"
