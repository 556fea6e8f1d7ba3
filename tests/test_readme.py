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


def text_before_python(root: Path) -> str:
    """Return what a newcomer reads first."""
    return (root / "README.md").read_text().partition("## In Python")[0]


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
    lines = [line for language in ("", "sh") for block in blocks(root, language) for line in block.split("\n")]
    named = {line.split()[1] for line in lines if line.startswith("openneutron ")}
    assert {"compile", "run", "explain", "pareto", "export", "doctor"} <= named
    assert named <= set(typer.main.get_command(application()).commands)


def test_its_pictures_show_the_commands_above_them(root: Path) -> None:
    """tests/test_generated.py runs the commands and compares the pictures."""
    assert COMPILE in blocks(root, "sh")[0] and PARETO in blocks(root, "sh")[1]
    text = (root / "README.md").read_text()
    for command, picture in ((COMPILE, "terminal.svg"), (PARETO, "memory.svg")):
        assert text.index(command) < text.index(f"docs/assets/{picture}")
        assert (root / "docs" / "assets" / picture).stat().st_size < 200_000


def test_its_figures_are_those_of_the_pictures(root: Path) -> None:
    """The captions and the table repeat what the pictures show."""
    text = (root / "README.md").read_text()
    shown = (root / "docs/assets/terminal.svg").read_text().replace("&#160;", " ")
    operators, whole, npu = re.findall(
        r"(\d+ of \d+ operators) on the NPU; ([\d.]+) ms .* ([\d.]+) ms on the NPU", text
    )[0]
    assert operators in shown
    assert re.search(rf"> *{whole} ms \([\d.]+ to [\d.]+\) at ", shown) and re.search(
        rf"> *NPU {npu} ms \([\d.]+ to [\d.]+\), host ", shown
    )
    drawn = (root / "docs/assets/memory.svg").read_text()
    curve = [
        (f"{float(ms):.1f}", f"{int(budget):,}")
        for budget, ms in re.findall(r"budget: (\d+) KiB; latency: ([\d.]+)", drawn)
    ]
    named = re.findall(r"([\d.]+) ms in ([\d,]+) KiB", text)
    assert len(named) == 3 and set(named) <= set(curve)
    assert named[-1] == curve[0] and f"smallest SRAM | {curve[0][1]} KiB" in text
    (caption,) = re.findall(r"!\[(.*)\]\(docs/assets/terminal.svg\)", text)
    assert f"![{caption}](assets/terminal.svg)" in (root / "docs/index.md").read_text()


def test_the_compiler_and_the_build_of_torch_are_named_before_the_first_command(root: Path) -> None:
    text = (root / "README.md").read_text()
    pinned = re.search(r"^torch==.*$", (root / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    first = text.index("```")
    assert "C and C++ compiler" in text[:first] and "CPU build of PyTorch" in text[:first]
    assert f"pip install {pinned[0]} --index-url" in blocks(root, "")[0]
    for page in ("docs/how-to/install.md", "docs/tutorials/index.md"):
        assert f"pip install {pinned[0]} --index-url" in (root / page).read_text()


def test_both_make_targets_exist(root: Path) -> None:
    assert "`make demo`" in text_before_python(root) and "`make test`" in text_before_python(root)
    makefile = (root / "Makefile").read_text()
    assert "\ndemo: " in makefile and "\ntest: " in makefile


def test_it_is_read_in_a_few_minutes(root: Path) -> None:
    assert len((root / "README.md").read_text().splitlines()) <= 120
