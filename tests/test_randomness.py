# SPDX-License-Identifier: BSD-3-Clause
"""No test's random numbers depend on other tests, on the order of the tests, or on the import of a module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT

CONFTEST = """
from tests.support.randomness import Randomness

def pytest_configure(config):
    config.pluginmanager.register(Randomness(0, {order}))
"""

DRAWS_FIRST = """
import numpy as np
import pytest

@pytest.fixture(scope="module")
def drawn():
    return np.random.rand()

@pytest.fixture
def again():
    return np.random.rand()

def test_one(drawn, again):
    print("one", drawn, again, np.random.rand())

def test_two(again):
    print("two", again, np.random.rand())

def test_three(drawn):
    print("three", drawn, np.random.rand())
"""


def _run(folder: Path, order: int | None) -> str:
    (folder / "conftest.py").write_text(CONFTEST.format(order=order))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-s",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        str(folder),
    ]
    return subprocess.run(
        command, cwd=ROOT, env={"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}, capture_output=True, text=True, check=False
    ).stdout


def test_numbers_are_the_same_in_another_order(tmp_path: Path) -> None:
    (tmp_path / "test_draws.py").write_text(DRAWS_FIRST)
    orders, lines = set(), set()
    for order in (None, 1, 2, 3):
        shown = [line.lstrip(".") for line in _run(tmp_path, order).splitlines()]
        found = [line for line in shown if line.startswith(("one", "two", "three"))]
        assert len(found) == 3, shown
        orders.add(tuple(found))
        lines.update(found)
    assert len(orders) > 1
    assert len(lines) == 3


def test_a_module_may_not_draw_at_its_import(tmp_path: Path) -> None:
    (tmp_path / "test_late.py").write_text("import numpy as np\nX = np.random.rand()\n\ndef test(): pass\n")
    assert (
        "test_late.py draws random numbers, or seeds a global generator, when it is imported. Draw them in a fixture or in "
        "the test, or from a generator of its own."
    ) in _run(tmp_path, None)


@pytest.mark.parametrize("number", [1, 2])
def test_each_test_starts_with_the_same_numbers(number: int) -> None:
    torch = pytest.importorskip("torch")
    assert float(torch.rand(1)) == float(torch.rand(1, generator=torch.Generator().manual_seed(0)))
    assert np.random.rand() == np.random.RandomState(0).rand()
