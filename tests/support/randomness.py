# SPDX-License-Identifier: BSD-3-Clause
"""Keep the order of tests, and the random numbers that other tests drew, out of each test's result."""

from __future__ import annotations

import importlib.abc
import importlib.util
import random
import sys
import zlib
from collections.abc import Generator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np
import pytest


def seed_generators(seed: int = 0) -> None:
    """Bring the global generators of Python, of NumPy and, where it is imported, of torch into the state of a seed."""
    random.seed(seed)
    np.random.seed(seed)
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(seed)


class SeededTorch(importlib.abc.MetaPathFinder):
    """Seed torch's generator once torch is imported: a new process of torch draws other numbers each time."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_seed(module: ModuleType) -> None:
                execute(module)
                seed_generators()

            spec.loader.exec_module = execute_and_seed  # type: ignore[method-assign]
        return spec


def _states() -> tuple[bytes, bytes]:
    """Return the states of NumPy's and torch's global generators; torch's is empty while torch is not imported."""
    numbers = np.random.get_state(legacy=False)["state"]
    torch = sys.modules.get("torch")
    return (
        numbers["key"].tobytes() + str(numbers["pos"]).encode(),
        torch.default_generator.get_state().numpy().tobytes() if torch else b"",
    )


def _shuffled(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """Return the tests with the files in another order, and the tests of each file too.

    The tests of a file stay together, so that they share its fixtures.
    """
    files: dict[object, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    chance, groups = random.Random(seed), list(files.values())
    chance.shuffle(groups)
    for group in groups:
        chance.shuffle(group)
    return [item for group in groups for item in group]


class Randomness:
    """A pytest plugin: each test and each fixture starts with the generators seeded, and no module draws at its import.

    ``seed`` is that of the generators, ``order`` that of the order of the tests (None: as collected).
    """

    def __init__(self, seed: int, order: int | None) -> None:
        self.seed = seed
        self.order = order

    def pytest_report_header(self) -> str:
        order = "as collected" if self.order is None else f"shuffled with seed {self.order}"
        return f"order: {order}; random numbers: seed {self.seed}"

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.order is not None:
            items[:] = _shuffled(items, self.order)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        """Fail a module whose import draws numbers: they would depend on the modules that were imported before."""
        if not isinstance(collector, pytest.Module):
            return (yield)
        seed_generators()
        report = yield
        after = _states()
        seed_generators()
        if report.passed and after != _states():
            report.outcome = "failed"
            report.longrepr = (
                f"{collector.nodeid} draws random numbers, or seeds a global generator, when it is imported. Draw them in a "
                "fixture or in the test, or from a generator of its own."
            )
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        seed_generators(self.seed)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """Seed before each fixture by its name, and again for the test: another test may have asked for the fixture first."""
        seed_generators(self.seed + zlib.crc32(fixturedef.argname.encode()) % 2**31)
        result = yield
        seed_generators(self.seed)
        return result
