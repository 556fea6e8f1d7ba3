# SPDX-License-Identifier: BSD-3-Clause
"""A pytest plugin that gives the suite our flow, limits each test's time and records the results."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from openneutron.device.third_party import suppressed
from tests.suites.executorch_operators.flow import TESTERS, register
from tests.suites.executorch_operators.records import Test, subtests_of

LIMIT_SECONDS = 120
"""FLOW_TEST_CASE_TIMEOUTS of ExecuTorch 1.5's backends/test/suite/conftest.py for an operator's test. Here it is processor
time, so that a busy machine fails no test."""


class Recorder:
    """Run each test within the limit and record it. Tests in ``without`` (``conv3d::test_conv3d_basic``) do not run."""

    def __init__(self, tell: Callable[[Test], None], without: Collection[str] = ()) -> None:
        register()
        self._tell = tell
        self._without = frozenset(without)
        self._seconds = 0.0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if name_of(item) not in self._without]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        TESTERS.clear()
        start = time.process_time()
        try:
            with suppressed(), _limited():
                return (yield)
        finally:
            self._seconds = time.process_time() - start

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Generator[None, Any, Any]:
        report = yield
        if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
            runner = getattr(item, "funcargs", {}).get("test_runner")
            found = () if runner is None else subtests_of(runner._results, TESTERS)
            file, _, name = name_of(item).partition("::")
            self._tell(Test(file, name, report.outcome, round(self._seconds, 2), found))
            TESTERS.clear()
        return report


def name_of(item: pytest.Item) -> str:
    """Return ``conv3d::test_conv3d_basic``: the file without ``test_``, the test without its parameters."""
    return f"{item.path.stem.removeprefix('test_')}::{getattr(item, 'originalname', None) or item.name}"


@contextmanager
def _limited() -> Iterator[None]:
    def stop(_number: int, _frame: object) -> None:
        pytest.fail(f"it took more than {LIMIT_SECONDS} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
