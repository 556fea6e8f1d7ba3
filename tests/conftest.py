# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures for every test, and the rule that CI skips nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.delegate import stock

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
SHARED_MODELS = ROOT.parent / "shared" / "models"


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared_models() -> Path:
    """The folder of trained models that lies beside the checkout, not in it."""
    if not SHARED_MODELS.is_dir():
        pytest.skip(f"{SHARED_MODELS} is absent: it holds the trained models this test compiles")
    return SHARED_MODELS


def pytest_report_header() -> str:
    return stock.header()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden texts anew instead of comparing")


@pytest.fixture(scope="session")
def golden(pytestconfig: pytest.Config) -> Callable[[str, str], None]:
    """Compares a text with tests/golden/NAME.txt, or writes it there if asked to."""
    update = bool(pytestconfig.getoption("--update-golden"))

    def compare(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if update:
            path.write_text(text)
        assert text == path.read_text(), f"{path.name}: see what differs; if it is right, run pytest --update-golden"

    return compare


def _fail_in_ci(report: Any) -> None:
    """A skip is a failure where the environment says CI: what CI can't run, nobody has checked."""
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"CI must not skip: {reason.removeprefix('Skipped: ')}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    report = yield
    _fail_in_ci(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    report = yield
    _fail_in_ci(report)
    return report
