# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures for every test, and the rule that CI skips nothing."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from openneutron import targets
from tests.support import built_once, composite_operators, randomness, stock, tools
from tests.support.made_networks import TRAINED_MODELS, models_folder

# Python looks for no garbage until the tests are collected: most of the objects that imports make stay.
gc.disable()

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"

settings.register_profile("same examples in each run", derandomize=True, deadline=None, database=None)
settings.load_profile("same examples in each run")


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared_models() -> Path:
    """Return the folder of trained models beside the checkout, or, where it is absent, a folder of networks with the
    same shapes."""
    return models_folder()


@pytest.fixture(scope="session", autouse=True)
def _built_folder(tmp_path_factory: pytest.TempPathFactory) -> Generator[None, None, None]:
    """Give all processes of a run one folder for what is built once."""
    base = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as environment:
        if built_once.FOLDER not in os.environ:  # a run that a test starts takes the folder of its own run
            environment.setenv(
                built_once.FOLDER, str((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "built")
            )
        yield


def pytest_report_header() -> list[str]:
    models = TRAINED_MODELS if TRAINED_MODELS.is_dir() else "absent; the tests make networks of the same shapes"
    return [stock.header(), f"trained models: {models}"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Report the missing tools, the number of tests skipped for each, and the command that installs them."""
    reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", ()) if report.longrepr]
    for line in tools.summary(reasons):
        terminalreporter.write_line(line, yellow=True)


CHIP, SHUFFLE, SEED = "--chip", "--shuffle", "--seed"


def pytest_configure(config: pytest.Config) -> None:
    """Give each test its random numbers, and have the tests that compare with LiteRT compile for another chip, where one
    is asked for."""
    sys.meta_path.insert(0, randomness.SeededTorch())
    config.pluginmanager.register(
        randomness.Randomness(seed=config.getoption(SEED), order=config.getoption(SHUFFLE)), "randomness"
    )
    if name := config.getoption(CHIP):
        from tests.support import oracle

        oracle.TARGET = targets.get(str(name))


def _markers_of_other_chips(target: targets.Target) -> list[str]:
    """Return the markers of the tests that do not apply to a chip."""
    applies = {
        "imxrt700": target.name == "imxrt700",
        "int16": targets.takes_int16(target, host_calls=True),
        "without_tiles": not target.moves_tiles,
    }
    return [marker for marker, whether in applies.items() if not whether]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that do not apply to the chip for which the tests run, and begin with the site, for which one process waits longest:
    the others have tests to run meanwhile."""
    if config.getoption(SHUFFLE) is None:
        items.sort(key=lambda item: item.path.name != "test_site.py")
    if name := config.getoption(CHIP):
        others = _markers_of_other_chips(targets.get(str(name)))
        left_out = [item for item in items if any(map(item.get_closest_marker, others))]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        CHIP, help="compile for another chip than imxrt700, such as mcxn94x, where a test compares with LiteRT"
    )
    parser.addoption(SHUFFLE, type=int, metavar="SEED", help="run the files, and the tests of each, in another order")
    parser.addoption(
        SEED, type=int, default=0, help="the seed of the global generators before each test; 0 unless given"
    )
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


SLOW = ("matplotlib", "sklearn", "timm", "transformers")
"""Packages that few tests need, and that take each process up to a second to import."""


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Fail a module that imports a slow package when it is imported itself."""
    before = sys.modules.keys() & SLOW
    report = yield
    if report.passed and (slow := sorted((sys.modules.keys() & SLOW) - before)):
        report.outcome = "failed"
        report.longrepr = (
            f"{collector.nodeid} imports {', '.join(slow)}. Import it in the tests or fixtures that need it."
        )
    _fail_in_ci(report)
    return report


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Collect garbage rarely, and leave out what the imported modules made: torch's alone are a million objects.

    Each compile asks whether any are left out, and Python counts them anew each time, in 30 ms.
    """
    gc.freeze()
    gc.get_freeze_count = cache(gc.get_freeze_count)
    gc.set_threshold(300_000)
    gc.enable()
    composite_operators.shorten()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Collect garbage once at the end: pytest does so five times, to report what finalizers raise, and each time goes
    through all objects of the session."""
    gc.collect()
    gc.freeze()
