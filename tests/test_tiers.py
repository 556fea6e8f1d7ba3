# SPDX-License-Identifier: BSD-3-Clause
"""``make check`` runs a part of what ``make test`` runs, and but for one network without torch."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

WITHOUT_TORCH = """
import sys
for name in ("torch", "torchao", "executorch"):
    sys.modules[name] = None  # importing it fails
import pytest
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


@pytest.fixture(scope="module")
def makefile(root: Path) -> str:
    return (root / "Makefile").read_text().replace("\\\n", " ")


def variable(makefile: str, name: str) -> list[str]:
    (value,) = re.findall(rf"^{name} := (.*)$", makefile, re.MULTILINE)
    return value.split()


def recipe(makefile: str, target: str) -> str:
    (line,) = re.findall(rf"^{target}:.*\n\t(.*)\n\n", makefile, re.MULTILINE)
    return line


def test_check_is_a_part_of_test(makefile: str, root: Path) -> None:
    """The suite is all of tests/, and the parts are in there."""
    options = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert options["testpaths"] == ["tests"]
    assert recipe(makefile, "test") == "$(BUILD) OPENNEUTRON_BUILT=$(BUILT) $(PYTEST)"
    assert recipe(makefile, "check") == "@$(MAKE) --no-print-directory --jobs=2 lint parts"
    assert recipe(makefile, "parts") == "$(PYTEST) $(PARTS) $(NETWORK) $(addprefix --ignore=,$(LONG))"
    for part in [path for name in ("PARTS", "LONG", "NETWORK") for path in variable(makefile, name)]:
        assert part.startswith("tests/") and (root / part.partition("::")[0]).exists(), part


def test_the_parts_need_no_torch(makefile: str, root: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_TORCH, *variable(makefile, "PARTS")]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
