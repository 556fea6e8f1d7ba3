# SPDX-License-Identifier: BSD-3-Clause
"""The README's example runs as it stands there, and every command it names exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import typer

from openneutron.cli.app import application


def blocks(root: Path, language: str) -> list[str]:
    """The README's fenced blocks of a language ("" for those that name none)."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", (root / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    return [text for name, text in fenced if name == language]


def test_the_example_runs(root: Path, tmp_path: Path) -> None:
    (example,) = blocks(root, "python")
    script = tmp_path / "example.py"
    script.write_text(example)
    result = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-4000:]
    assert (tmp_path / "model.pte").stat().st_size > 1000
    assert "tensor(" in result.stdout and "NPU" in result.stdout


def test_every_command_it_names_exists(root: Path) -> None:
    named = {
        line.split()[1] for block in blocks(root, "") for line in block.split("\n") if line.startswith("openneutron ")
    }
    assert named == set(typer.main.get_command(application()).commands)


def test_both_make_targets_exist(root: Path) -> None:
    assert blocks(root, "")[0] == "make demo\nmake test\n"
    makefile = (root / "Makefile").read_text()
    assert "\ndemo: " in makefile and "\ntest: " in makefile
