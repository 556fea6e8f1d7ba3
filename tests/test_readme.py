# SPDX-License-Identifier: BSD-3-Clause
"""The README's example runs as it stands there, and every command it names exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import typer

from openneutron.cli.app import application
from scripts.pictures import COMPILE, PARETO


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
    assert {"compile", "run", "explain", "pareto", "export", "doctor"} <= named
    assert named <= set(typer.main.get_command(application()).commands)


def test_its_pictures_show_the_commands_above_them(root: Path) -> None:
    """tests/test_generated.py runs the commands and compares the pictures."""
    assert COMPILE in blocks(root, "")[0] and PARETO in blocks(root, "")[1]
    text = (root / "README.md").read_text()
    for command, picture in ((COMPILE, "terminal.svg"), (PARETO, "memory.svg")):
        assert text.index(command) < text.index(f"docs/assets/{picture}")
        assert (root / "docs" / "assets" / picture).stat().st_size < 200_000


def test_its_figures_are_those_of_the_picture(root: Path) -> None:
    """The captions repeat what the picture of the terminal shows."""
    shown = (root / "docs/assets/terminal.svg").read_text().replace("&#160;", " ")
    assert "99 of 99 operators" in shown and "25.43 ms" in shown


def test_both_make_targets_exist(root: Path) -> None:
    assert "make demo\nmake test\n" in blocks(root, "")
    makefile = (root / "Makefile").read_text()
    assert "\ndemo: " in makefile and "\ntest: " in makefile


def test_it_is_read_in_a_few_minutes(root: Path) -> None:
    assert len((root / "README.md").read_text().splitlines()) <= 120
